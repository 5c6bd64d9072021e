/* What the compiled parts share: numpy's arrays, read where they lie, and functions for the processor at hand. */

#define Py_LIMITED_API 0x030B0000
#define PY_SSIZE_T_CLEAN
#define NPY_NO_DEPRECATED_API NPY_2_0_API_VERSION
#include <Python.h>

#include <numpy/arrayobject.h>
#include <stdbool.h>

/* Several numbers are computed by one instruction where the processor has it, which is seen when the module is loaded. */
#if defined(__GNUC__) && !defined(__clang__) && defined(__x86_64__) && defined(__GLIBC__)
#define BY_PROCESSOR __attribute__((target_clones("avx2", "default")))
#else
#define BY_PROCESSOR
#endif

typedef const double *restrict Row;

/* A function of a module: (module, arguments, their number). */
#define FUNCTION(name, doc) {#name, (PyCFunction)(void (*)(void))name, METH_FASTCALL, doc}

/* The array, where it holds 8-byte numbers of this type along so many axes, any number where that is -1; else NULL. */
static inline PyArrayObject *array_of(PyObject *object, int type, int axes) {
    PyArrayObject *a = PyArray_Check(object) ? (PyArrayObject *)object : NULL;
    return a && PyArray_TYPE(a) == type && (axes < 0 || PyArray_NDIM(a) == axes) && PyArray_ISBEHAVED_RO(a) ? a : NULL;
}

/* Whether numbers that follow one another along the last axis lie side by side. */
static inline bool rows_contiguous(PyArrayObject *a) {
    int last = PyArray_NDIM(a) - 1;
    return PyArray_DIM(a, last) < 2 || PyArray_STRIDE(a, last) == 8 || PyArray_SIZE(a) == 0;
}

/* Whether it may be written to; else with an exception. */
static inline bool writable(PyArrayObject *a) { return PyArray_FailUnlessWriteable(a, "an array that is filled") == 0; }

static inline void *row_of(PyArrayObject *a, Py_ssize_t r) { return PyArray_BYTES(a) + r * PyArray_STRIDE(a, 0); }

/* To be called when a module is loaded. Who imports it does without where numpy's arrays are others by now. */
static inline int use_arrays(PyObject *Py_UNUSED(module)) {
    if (PyArray_ImportNumPyAPI() == 0) return 0;
    PyErr_SetString(PyExc_ImportError, "it was built for another numpy");
    return -1;
}
