/* Sums over small shards, and clips by one number for each record: to the bit what `linear_terms.py` has numpy compute.

   Every operation is one of IEEE 754 on float64, in the order that is stated; products and sums must not be contracted.
*/

#define Py_LIMITED_API 0x030B0000
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <math.h>
#include <stdbool.h>

/* Several numbers are computed by one instruction where the processor has it, which is seen when the module is loaded. */
#if defined(__GNUC__) && !defined(__clang__) && defined(__x86_64__) && defined(__GLIBC__)
#define BY_PROCESSOR __attribute__((target_clones("avx2", "default")))
#else
#define BY_PROCESSOR
#endif

typedef const double *restrict Row;

/* c·min(1, bound/(|c|·norm)); 0 where the factor is below `least`, or anything on the way is no number. */
BY_PROCESSOR
static void clip_row(double *restrict coefficients, Row norms, Py_ssize_t n, double bound, double least) {
    for (Py_ssize_t k = 0; k < n; k++) {
        double factor = bound / (fabs(coefficients[k]) * norms[k]);
        /* Written so that NaN stays NaN. */
        factor = factor > 1.0 ? 1.0 : factor;
        double clipped = coefficients[k] * (factor < least ? 0.0 : factor);
        coefficients[k] = clipped == clipped ? clipped : 0.0;
    }
}

/* Σ_j a_j v_j of every row, the first product first. Four rows at a time do not wait for one another. */
static void products(Row rows, Py_ssize_t stride, Row v, Py_ssize_t n, Py_ssize_t d, double *restrict out) {
    Py_ssize_t k = 0;
    for (; k + 4 <= n; k += 4) {
        double s[4];
        for (int i = 0; i < 4; i++) s[i] = rows[(k + i) * stride] * v[0];
        for (Py_ssize_t j = 1; j < d; j++)
            for (int i = 0; i < 4; i++) s[i] += rows[(k + i) * stride + j] * v[j];
        for (int i = 0; i < 4; i++) out[k + i] = s[i];
    }
    for (; k < n; k++) {
        out[k] = rows[k * stride] * v[0];
        for (Py_ssize_t j = 1; j < d; j++) out[k] += rows[k * stride + j] * v[j];
    }
}

/* Σ_k c_k a_k, the first row first. */
BY_PROCESSOR
static void sums(Row c, Row rows, Py_ssize_t stride, Py_ssize_t n, Py_ssize_t d, double *restrict out) {
    for (Py_ssize_t j = 0; j < d; j++) out[j] = c[0] * rows[j];
    for (Py_ssize_t k = 1; k < n; k++)
        for (Py_ssize_t j = 0; j < d; j++) out[j] += c[k] * rows[k * stride + j];
}

/* a·v + w − λ·d */
BY_PROCESSOR
static void step_row(double a, Row v, Row w, double size, Row d, Py_ssize_t n, double *restrict out) {
    for (Py_ssize_t j = 0; j < n; j++) out[j] = (a * v[j] + w[j]) - size * d[j];
}

/* The arrays of a call; one row or one shard of each for an agent. */
enum { COEFFICIENTS, NORMS, ROWS, SUMS, OUT, MOST, VECTORS = COEFFICIENTS, PRODUCTS = NORMS };
enum { KEPT = COEFFICIENTS, OWN, NEAR, DIRECTION };
typedef struct {
    Py_buffer views[MOST];
    bool got[MOST];
} Arrays;

static PyObject *released(Arrays *arrays) {
    for (int which = 0; which < MOST; which++)
        if (arrays->got[which]) PyBuffer_Release(&arrays->views[which]);
    return PyErr_Occurred() ? NULL : Py_NewRef(Py_None);
}

static bool refused(void) {
    PyErr_SetString(PyExc_ValueError, "wanted float64 arrays of the same agents, records and features, rows contiguous");
    return false;
}

/* float64 numbers of this shape (g, n) or (g, n, d), any length where it says -1; the last axis contiguous. */
static bool get(Arrays *arrays, int which, PyObject *array, bool written, int axes, Py_ssize_t g, Py_ssize_t n) {
    Py_buffer *view = &arrays->views[which];
    if (PyObject_GetBuffer(array, view, PyBUF_STRIDES | (written ? PyBUF_WRITABLE : 0)) < 0) return false;
    arrays->got[which] = true;
    if (view->ndim == axes && view->itemsize == 8 && (g < 0 || view->shape[0] == g) && (n < 0 || view->shape[1] == n) &&
        (view->shape[axes - 1] < 2 || view->strides[axes - 1] == 8))
        return true;
    return refused();
}

static inline double *of(const Arrays *arrays, int which, Py_ssize_t agent) {
    return (double *)((char *)arrays->views[which].buf + agent * arrays->views[which].strides[0]);
}

PyDoc_STRVAR(clip_doc, "clip(coefficients, norms, bound, least)\n--\n\n"
                       "Clip coefficients (g, n) in place, each by the norm (g, n) of what it multiplies.");

static PyObject *clip(PyObject *Py_UNUSED(module), PyObject *args) {
    PyObject *coefficients, *norms;
    double bound, least;
    Arrays a = {.got = {false}};
    if (!PyArg_ParseTuple(args, "OOdd", &coefficients, &norms, &bound, &least)) return NULL;
    if (get(&a, COEFFICIENTS, coefficients, true, 2, -1, -1)) {
        Py_ssize_t g = a.views[COEFFICIENTS].shape[0], n = a.views[COEFFICIENTS].shape[1];
        if (get(&a, NORMS, norms, false, 2, g, n))
            for (Py_ssize_t r = 0; r < g; r++) clip_row(of(&a, COEFFICIENTS, r), of(&a, NORMS, r), n, bound, least);
    }
    return released(&a);
}

PyDoc_STRVAR(forward_doc, "forward(rows, vectors, out)\n--\n\n"
                          "Fill out (g, n) with the products of rows (g, n, d) and the vector (g, d) of their agent.");

static PyObject *forward(PyObject *Py_UNUSED(module), PyObject *args) {
    PyObject *rows, *vectors, *out;
    Arrays a = {.got = {false}};
    if (!PyArg_ParseTuple(args, "OOO", &rows, &vectors, &out)) return NULL;
    if (get(&a, ROWS, rows, false, 3, -1, -1)) {
        Py_ssize_t g = a.views[ROWS].shape[0], n = a.views[ROWS].shape[1], d = a.views[ROWS].shape[2];
        if ((n && d ? true : refused()) && get(&a, VECTORS, vectors, false, 2, g, d) && get(&a, PRODUCTS, out, true, 2, g, n))
            for (Py_ssize_t r = 0; r < g; r++)
                products(of(&a, ROWS, r), a.views[ROWS].strides[1] / 8, of(&a, VECTORS, r), n, d, of(&a, PRODUCTS, r));
    }
    return released(&a);
}

PyDoc_STRVAR(clipped_sums_doc, "clipped_sums(coefficients, norms, bound, least, rows, out)\n--\n\n"
                               "Clip as `clip` does, and fill out (g, d) with the sums over rows (g, n, d), each times its "
                               "coefficient.");

static PyObject *clipped_sums(PyObject *Py_UNUSED(module), PyObject *args) {
    PyObject *coefficients, *norms, *rows, *out;
    double bound, least;
    Arrays a = {.got = {false}};
    if (!PyArg_ParseTuple(args, "OOddOO", &coefficients, &norms, &bound, &least, &rows, &out)) return NULL;
    if (get(&a, ROWS, rows, false, 3, -1, -1)) {
        Py_ssize_t g = a.views[ROWS].shape[0], n = a.views[ROWS].shape[1], d = a.views[ROWS].shape[2];
        if ((n && d ? true : refused()) && get(&a, COEFFICIENTS, coefficients, true, 2, g, n) &&
            get(&a, NORMS, norms, false, 2, g, n) && get(&a, SUMS, out, true, 2, g, d))
            for (Py_ssize_t r = 0; r < g; r++) {
                clip_row(of(&a, COEFFICIENTS, r), of(&a, NORMS, r), n, bound, least);
                sums(of(&a, COEFFICIENTS, r), of(&a, ROWS, r), a.views[ROWS].strides[1] / 8, n, d, of(&a, SUMS, r));
            }
    }
    return released(&a);
}

PyDoc_STRVAR(step_doc, "step(kept, own, near, size, direction, out)\n--\n\n"
                       "Fill out (g, d) with kept·own + near - size·direction, kept (g, 1), the others (g, d).");

static PyObject *step(PyObject *Py_UNUSED(module), PyObject *args) {
    PyObject *kept, *own, *near, *direction, *out;
    double size;
    Arrays a = {.got = {false}};
    if (!PyArg_ParseTuple(args, "OOOdOO", &kept, &own, &near, &size, &direction, &out)) return NULL;
    if (get(&a, OUT, out, true, 2, -1, -1)) {
        Py_ssize_t g = a.views[OUT].shape[0], d = a.views[OUT].shape[1];
        if (get(&a, KEPT, kept, false, 2, g, 1) && get(&a, OWN, own, false, 2, g, d) &&
            get(&a, NEAR, near, false, 2, g, d) && get(&a, DIRECTION, direction, false, 2, g, d))
            for (Py_ssize_t r = 0; r < g; r++)
                step_row(*of(&a, KEPT, r), of(&a, OWN, r), of(&a, NEAR, r), size, of(&a, DIRECTION, r), d, of(&a, OUT, r));
    }
    return released(&a);
}

static PyMethodDef methods[] = {{"clip", clip, METH_VARARGS, clip_doc},
                                {"forward", forward, METH_VARARGS, forward_doc},
                                {"clipped_sums", clipped_sums, METH_VARARGS, clipped_sums_doc},
                                {"step", step, METH_VARARGS, step_doc},
                                {NULL, NULL, 0, NULL}};
static PyModuleDef_Slot slots[] = {{0, NULL}};
static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT, "_linear_terms", "Sums over small shards, and clips.", 0, methods, slots, NULL, NULL, NULL};

PyMODINIT_FUNC PyInit__linear_terms(void) { return PyModuleDef_Init(&definition); }
