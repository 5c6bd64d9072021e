/* Rounding to a grid and adding noise there, in one pass: to the bit what the numpy functions beside it compute.

   Every operation is one of IEEE 754 on float64, rounded as numpy rounds it; products and sums must not be contracted.
*/

#define Py_LIMITED_API 0x030B0000
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <math.h>

/* Several numbers are rounded by one instruction where the processor has it, which is seen when the module is loaded. */
#if defined(__GNUC__) && !defined(__clang__) && defined(__x86_64__) && defined(__GLIBC__)
#define BY_PROCESSOR __attribute__((target_clones("avx2", "default")))
#else
#define BY_PROCESSOR
#endif

/* Columns at a time, so that one number for all columns can be spread over so many. */
#define COLUMNS 256

enum { QUERY, GRID, RATIO, OUT, FIRST, SECOND, THIRD, MOST };
typedef const double *restrict Row;
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
static const double *part(const Py_buffer *view, Py_ssize_t r, Py_ssize_t first, Py_ssize_t n, double *spread) {
    const double *row = (const double *)((const char *)view->buf + (view->shape[0] == 1 ? 0 : r * view->strides[0]));
    if (view->shape[1] != 1) return row + first;
    for (Py_ssize_t i = 0; i < n; i++) spread[i] = row[0];
    return spread;
}

static int get(PyObject *array, Py_buffer *view, int flags, const Py_buffer *out) {
    if (PyObject_GetBuffer(array, view, flags | PyBUF_STRIDES) < 0) return -1;
    if (view->ndim == 2 && view->itemsize == 8 && (view->shape[1] < 2 || view->strides[1] == 8) &&
        (out == NULL || ((view->shape[0] == 1 || view->shape[0] == out->shape[0]) &&
                         (view->shape[1] == 1 || view->shape[1] == out->shape[1]))))
        return 0;
    PyBuffer_Release(view);
    PyErr_SetString(PyExc_ValueError, "wanted rows of contiguous float64 numbers, of one shape or one for all");
    return -1;
}

/* arguments: query, grid, ratio, out, and what is added. */
static PyObject *over_rows(Pass *pass, PyObject *arguments, Py_ssize_t wanted) {
    Py_buffer views[MOST], out;
    double spread[MOST][COLUMNS];
    PyObject *result = NULL;
    Py_ssize_t taken = 0;
    if (PyTuple_Size(arguments) != wanted)
        return PyErr_Format(PyExc_TypeError, "wanted %zd arrays, got %zd", wanted, PyTuple_Size(arguments));
    if (get(PyTuple_GetItem(arguments, OUT), &out, PyBUF_WRITABLE, NULL) < 0) return NULL;
    for (; taken < wanted; taken++)
        if (get(PyTuple_GetItem(arguments, taken), &views[taken], 0, &out) < 0) goto release;
    Py_BEGIN_ALLOW_THREADS
    for (Py_ssize_t r = 0; r < out.shape[0]; r++) {
        double *row = (double *)((char *)out.buf + r * out.strides[0]);
        for (Py_ssize_t first = 0; first < out.shape[1]; first += COLUMNS) {
            Py_ssize_t n = out.shape[1] - first < COLUMNS ? out.shape[1] - first : COLUMNS;
            const double *rows[MOST] = {NULL};
            for (Py_ssize_t k = 0; k < wanted; k++)
                if (k != OUT) rows[k] = part(&views[k], r, first, n, spread[k]);
            pass(rows[QUERY], rows[GRID], rows[RATIO], rows[FIRST], rows[SECOND], rows[THIRD], row + first, n);
        }
    }
    Py_END_ALLOW_THREADS
    result = Py_NewRef(Py_None);
release:
    while (taken-- > 0) PyBuffer_Release(&views[taken]);
    PyBuffer_Release(&out);
    return result;
}

static PyObject *laplace(PyObject *Py_UNUSED(module), PyObject *args) { return over_rows(laplace_pass, args, 7); }
static PyObject *gaussian(PyObject *Py_UNUSED(module), PyObject *args) { return over_rows(gaussian_pass, args, 5); }
static PyObject *wide_gaussian(PyObject *Py_UNUSED(module), PyObject *args) {
    return over_rows(wide_gaussian_pass, args, 6);
}
static PyObject *released(PyObject *Py_UNUSED(module), PyObject *args) { return over_rows(released_pass, args, 4); }

/* arguments: out, first, and arrays whose rows `first` and following are copied there side by side. */
static PyObject *columns(PyObject *Py_UNUSED(module), PyObject *args) {
    Py_buffer out, from;
    if (PyTuple_Size(args) < 2) return PyErr_Format(PyExc_TypeError, "wanted out, the first row, and arrays");
    Py_ssize_t first = PyLong_AsSsize_t(PyTuple_GetItem(args, 1)), column = 0;
    if (PyErr_Occurred() || get(PyTuple_GetItem(args, 0), &out, PyBUF_WRITABLE, NULL) < 0) return NULL;
    for (Py_ssize_t k = 2; k < PyTuple_Size(args) && !PyErr_Occurred(); k++) {
        if (PyObject_GetBuffer(PyTuple_GetItem(args, k), &from, PyBUF_STRIDES) < 0) break;
        if (from.ndim == 2 && from.itemsize == 8 && first >= 0 && from.shape[0] - first >= out.shape[0] &&
            out.shape[1] - column >= from.shape[1]) {
            for (Py_ssize_t r = 0; r < out.shape[0]; r++) {
                double *to = (double *)((char *)out.buf + r * out.strides[0]) + column;
                const char *row = (const char *)from.buf + (first + r) * from.strides[0];
                for (Py_ssize_t i = 0; i < from.shape[1]; i++) to[i] = *(const double *)(row + i * from.strides[1]);
            }
            column += from.shape[1];
        } else PyErr_SetString(PyExc_ValueError, "wanted float64 arrays of these rows, as wide together as what is filled");
        PyBuffer_Release(&from);
    }
    if (!PyErr_Occurred() && column != out.shape[1]) PyErr_SetString(PyExc_ValueError, "what is filled is wider");
    PyBuffer_Release(&out);
    return PyErr_Occurred() ? NULL : Py_NewRef(Py_None);
}

static PyMethodDef methods[] = {
    {"columns", columns, METH_VARARGS, "columns(out, first, *arrays)\n--\n"},
    {"laplace", laplace, METH_VARARGS, "laplace(query, grid, ratio, out, exponentials, others, uniforms)\n--\n"},
    {"gaussian", gaussian, METH_VARARGS, "gaussian(query, grid, ratio, out, normals)\n--\n"},
    {"wide_gaussian", wide_gaussian, METH_VARARGS, "wide_gaussian(query, grid, ratio, out, normals, uniforms)\n--\n"},
    {"released", released, METH_VARARGS, "released(integers, grid, ratio, public)\n--\n"},
    {NULL, NULL, 0, NULL}};
static PyModuleDef_Slot slots[] = {{0, NULL}};
static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT, "_integers", "Noise on a grid, in one pass.", 0, methods, slots, NULL, NULL, NULL};

PyMODINIT_FUNC PyInit__integers(void) { return PyModuleDef_Init(&definition); }
