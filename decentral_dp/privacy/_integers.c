/* Rounding to a grid and adding noise there, in one pass: to the bit what the numpy functions beside it compute.

   Every operation is one of IEEE 754 on float64, rounded as numpy rounds it; products and sums must not be contracted.
*/

#include "../_arrays.h"

#include <math.h>

/* Columns at a time, so that one number for all columns can be spread over so many. */
#define COLUMNS 256

/* What a pass reads: a query or integers, and so on; what it does not want is NULL. */
enum { QUERY, GRID, RATIO, FIRST, SECOND, THIRD, MOST };
typedef void Pass(Row query, Row grid, Row ratio, Row first, Row second, Row third, double *restrict out, Py_ssize_t n);

/* floor(x) + [u < x − floor(x)] */
static inline double at_random(double x, double u) {
    double below = floor(x);
    return below + (u < x - below ? 1.0 : 0.0);
}

BY_PROCESSOR
static void laplace_pass(Row q, Row g, Row ratio, Row plus, Row minus, Row u, double *restrict out, Py_ssize_t n) {
    for (Py_ssize_t i = 0; i < n; i++)
        out[i] = at_random(q[i] * (1.0 / g[i]), u[i]) + floor(plus[i] * ratio[i]) - floor(minus[i] * ratio[i]);
}

BY_PROCESSOR
static void gaussian_pass(Row q, Row g, Row ratio, Row z, Row Py_UNUSED(b), Row Py_UNUSED(c), double *restrict out,
                          Py_ssize_t n) {
    for (Py_ssize_t i = 0; i < n; i++) out[i] = rint(q[i] * (1.0 / g[i])) + rint(z[i] * ratio[i]);
}

BY_PROCESSOR
static void wide_gaussian_pass(Row q, Row g, Row ratio, Row z, Row u, Row Py_UNUSED(c), double *restrict out,
                               Py_ssize_t n) {
    for (Py_ssize_t i = 0; i < n; i++) out[i] = at_random(q[i] * (1.0 / g[i]), u[i]) + rint(z[i] * ratio[i]);
}

/* The public part in `out` becomes the value that leaves: g·(rint(public/g) + integer). */
BY_PROCESSOR
static void released_pass(Row integer, Row g, Row Py_UNUSED(ratio), Row Py_UNUSED(a), Row Py_UNUSED(b),
                          Row Py_UNUSED(c), double *restrict out, Py_ssize_t n) {
    for (Py_ssize_t i = 0; i < n; i++) out[i] = (rint(out[i] * (1.0 / g[i])) + integer[i]) * g[i];
}

/* Columns `first` and following of row r; one row or one column of an array stands for all. */
static const double *part(PyArrayObject *a, Py_ssize_t r, Py_ssize_t first, Py_ssize_t n, double *spread) {
    const char *row = row_of(a, PyArray_DIM(a, 0) == 1 ? 0 : r);
    Py_ssize_t stride = PyArray_DIM(a, 1) == 1 ? 0 : PyArray_STRIDE(a, 1);
    row += first * stride;
    if (stride == 8) return (const double *)row;
    for (Py_ssize_t i = 0; i < n; i++) spread[i] = *(const double *)(row + i * stride);
    return spread;
}

static PyObject *refused(void) {
    PyErr_SetString(PyExc_ValueError, "wanted rows of float64 numbers, of one shape or one for all");
    return NULL;
}

/* Fill out from some arrays. */
static bool fill(PyArrayObject *out, Pass *pass, PyObject *const *arrays, Py_ssize_t given) {
    Py_ssize_t rows = PyArray_DIM(out, 0), columns = PyArray_DIM(out, 1);
    for (Py_ssize_t k = 0; k < given; k++) {
        PyArrayObject *a = array_of(arrays[k], NPY_DOUBLE, 2);
        if (!a || (PyArray_DIM(a, 0) != 1 && PyArray_DIM(a, 0) != rows) ||
            (PyArray_DIM(a, 1) != 1 && PyArray_DIM(a, 1) != columns))
            return refused();
    }
    Py_BEGIN_ALLOW_THREADS
    double spread[MOST][COLUMNS];
    for (Py_ssize_t r = 0; r < rows; r++)
        for (Py_ssize_t first = 0; first < columns; first += COLUMNS) {
            Py_ssize_t n = columns - first < COLUMNS ? columns - first : COLUMNS;
            const double *read[MOST] = {NULL};
            for (Py_ssize_t k = 0; k < given; k++)
                read[k] = part((PyArrayObject *)arrays[k], r, first, n, spread[k]);
            pass(read[QUERY], read[GRID], read[RATIO], read[FIRST], read[SECOND], read[THIRD],
                 (double *)row_of(out, r) + first, n);
        }
    Py_END_ALLOW_THREADS
    return true;
}

/* A new array of the shape of the first one. */
static PyObject *noised(Pass *pass, PyObject *const *args, Py_ssize_t given, Py_ssize_t wanted) {
    if (given != wanted) return PyErr_Format(PyExc_TypeError, "wanted %zd arrays, got %zd", wanted, given);
    PyArrayObject *query = array_of(args[0], NPY_DOUBLE, 2);
    PyObject *out = query ? PyArray_SimpleNew(2, PyArray_DIMS(query), NPY_DOUBLE) : refused();
    if (out && !fill((PyArrayObject *)out, pass, args, given)) Py_CLEAR(out);
    return out;
}

static PyObject *laplace(PyObject *Py_UNUSED(module), PyObject *const *args, Py_ssize_t given) {
    return noised(laplace_pass, args, given, 6);
}
static PyObject *gaussian(PyObject *Py_UNUSED(module), PyObject *const *args, Py_ssize_t given) {
    return noised(gaussian_pass, args, given, 4);
}
static PyObject *wide_gaussian(PyObject *Py_UNUSED(module), PyObject *const *args, Py_ssize_t given) {
    return noised(wide_gaussian_pass, args, given, 5);
}

/* The array, where it may be written to, row by row; else NULL with an exception. */
static PyArrayObject *written(PyObject *object) {
    PyArrayObject *a = array_of(object, NPY_DOUBLE, 2);
    if (!a || !rows_contiguous(a)) return (PyArrayObject *)refused();
    return writable(a) ? a : NULL;
}

static PyObject *released(PyObject *Py_UNUSED(module), PyObject *const *args, Py_ssize_t given) {
    if (given != 3) return PyErr_Format(PyExc_TypeError, "wanted integers, grid and public");
    PyArrayObject *out = written(args[2]);
    return out && fill(out, released_pass, args, 2) ? Py_NewRef(Py_None) : NULL;
}

/* arguments: out, first, and arrays whose rows `first` and following are copied there side by side. */
static PyObject *columns(PyObject *Py_UNUSED(module), PyObject *const *args, Py_ssize_t given) {
    if (given < 2) return PyErr_Format(PyExc_TypeError, "wanted out, the first row, and arrays");
    PyArrayObject *out = written(args[0]);
    Py_ssize_t first = PyLong_AsSsize_t(args[1]), column = 0;
    if (!out || PyErr_Occurred()) return NULL;
    for (Py_ssize_t k = 2; k < given; k++) {
        PyArrayObject *from = array_of(args[k], NPY_DOUBLE, 2);
        if (!from || first < 0 || PyArray_DIM(from, 0) - first < PyArray_DIM(out, 0) ||
            PyArray_DIM(out, 1) - column < PyArray_DIM(from, 1))
            return refused();
        Py_ssize_t width = PyArray_DIM(from, 1), stride = PyArray_STRIDE(from, 1);
        for (Py_ssize_t r = 0; r < PyArray_DIM(out, 0); r++) {
            double *to = (double *)row_of(out, r) + column;
            const char *row = row_of(from, first + r);
            for (Py_ssize_t i = 0; i < width; i++) to[i] = *(const double *)(row + i * stride);
        }
        column += width;
    }
    if (column != PyArray_DIM(out, 1)) return PyErr_Format(PyExc_ValueError, "what is filled is wider");
    return Py_NewRef(Py_None);
}

static PyMethodDef methods[] = {
    FUNCTION(columns, "columns(out, first, *arrays)\n--\n"),
    FUNCTION(laplace, "laplace(query, grid, ratio, exponentials, others, uniforms)\n--\n"),
    FUNCTION(gaussian, "gaussian(query, grid, ratio, normals)\n--\n"),
    FUNCTION(wide_gaussian, "wide_gaussian(query, grid, ratio, normals, uniforms)\n--\n"),
    FUNCTION(released, "released(integers, grid, public)\n--\n"),
    {NULL, NULL, 0, NULL}};
static PyModuleDef_Slot slots[] = {{Py_mod_exec, use_arrays}, {0, NULL}};
static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT, "_integers", "Noise on a grid, in one pass.", 0, methods, slots, NULL, NULL, NULL};

PyMODINIT_FUNC PyInit__integers(void) { return PyModuleDef_Init(&definition); }
