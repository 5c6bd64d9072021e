/* Sums over small shards, and clips by one number for each record: to the bit what `linear_terms.py` has numpy compute.

   Every operation is one of IEEE 754 on float64, in the order that is stated; products and sums must not be contracted.
*/

#define Py_LIMITED_API 0x030B0000
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

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

/* Σ_k c_k a_k, the first row first, over a divisor. */
BY_PROCESSOR
static void sums(Row c, Row rows, Py_ssize_t stride, Py_ssize_t n, Py_ssize_t d, double divisor, double *restrict out) {
    for (Py_ssize_t j = 0; j < d; j++) out[j] = c[0] * rows[j];
    for (Py_ssize_t k = 1; k < n; k++)
        for (Py_ssize_t j = 0; j < d; j++) out[j] += c[k] * rows[k * stride + j];
    for (Py_ssize_t j = 0; j < d; j++) out[j] /= divisor;
}

/* Of the logistic loss from e^t: −σ(−t), and σ(t)σ(−t)·along where that is asked for, in the place of e^t. */
BY_PROCESSOR
static void logistic_row(double *restrict exp_t, const double *along, Py_ssize_t n, double *restrict slope) {
    for (Py_ssize_t k = 0; k < n; k++) slope[k] = -1.0 / (exp_t[k] + 1.0);
    for (Py_ssize_t k = 0; along && k < n; k++) exp_t[k] = exp_t[k] * slope[k] * slope[k] * along[k];
}

/* e·y, e·z and e·y·z, the last as a sum of one term begins, with 0.0. */
BY_PROCESSOR
static void strengths_row(Row e, Row y, Row z, Py_ssize_t n, double *restrict by_y, double *restrict by_z,
                          double *restrict by_both) {
    for (Py_ssize_t j = 0; j < n; j++) {
        by_y[j] = e[j] * y[j];
        by_z[j] = e[j] * z[j];
        by_both[j] = by_y[j] * z[j] + 0.0;
    }
}

/* a·v + w − λ·d */
BY_PROCESSOR
static void step_row(double a, Row v, Row w, double size, Row d, Py_ssize_t n, double *restrict out) {
    for (Py_ssize_t j = 0; j < n; j++) out[j] = (a * v[j] + w[j]) - size * d[j];
}

/* out + w·m */
BY_PROCESSOR
static void add_row(double w, Row m, Py_ssize_t d, double *restrict out) {
    for (Py_ssize_t j = 0; j < d; j++) out[j] += w * m[j];
}

/* Arrays of a call that are filled, at most. */
#define FILLED 4
/* The arrays of a call; one row or one shard of each for an agent. */
enum { ROWS, NORMS, COEFFICIENTS, RESULTS = COEFFICIENTS + FILLED, MOST = RESULTS + FILLED, VECTORS = COEFFICIENTS };
enum { KEPT, OWN, NEAR, DIRECTION, OUT };
enum { EXP, ALONG, SLOPE };
enum { ENDS, COLUMNS, WEIGHTS, MESSAGES };
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

/* Numbers of one of these letters, of this shape (g,), (g, n) or (g, n, d), any length where it says -1; the last axis
   contiguous. */
static bool get_as(const char *letters, Arrays *arrays, int which, PyObject *array, bool written, int axes, Py_ssize_t g,
                   Py_ssize_t n) {
    Py_buffer *view = &arrays->views[which];
    if (PyObject_GetBuffer(array, view, PyBUF_STRIDES | PyBUF_FORMAT | (written ? PyBUF_WRITABLE : 0)) < 0) return false;
    arrays->got[which] = true;
    if (view->ndim == axes && view->itemsize == 8 && strchr(letters, view->format[0]) && !view->format[1] &&
        (g < 0 || view->shape[0] == g) && (n < 0 || view->shape[1] == n) &&
        (view->shape[axes - 1] < 2 || view->strides[axes - 1] == 8))
        return true;
    return refused();
}

static bool get(Arrays *arrays, int which, PyObject *array, bool written, int axes, Py_ssize_t g, Py_ssize_t n) {
    return get_as("d", arrays, which, array, written, axes, g, n);
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

PyDoc_STRVAR(forward_doc, "forward(rows, *filled)\n--\n\n"
                          "Fill arrays with the products of rows (g, n, d) and a vector of their agent.\n\n"
                          "filled: the vectors (g, d), the products (g, n); and so on.");

static PyObject *forward(PyObject *Py_UNUSED(module), PyObject *args) {
    Arrays a = {.got = {false}};
    Py_ssize_t given = PyTuple_Size(args);
    if (given % 2 != 1 || given > 1 + 2 * FILLED) return PyErr_Format(PyExc_TypeError, "wanted rows, and at most %d pairs", FILLED);
    if (!get(&a, ROWS, PyTuple_GetItem(args, 0), false, 3, -1, -1)) return released(&a);
    Py_ssize_t g = a.views[ROWS].shape[0], n = a.views[ROWS].shape[1], d = a.views[ROWS].shape[2];
    int pairs = (int)(given / 2);
    bool fits = n && d ? true : refused();
    for (int k = 0; fits && k < pairs; k++)
        fits = get(&a, VECTORS + k, PyTuple_GetItem(args, 1 + 2 * k), false, 2, g, d) &&
               get(&a, RESULTS + k, PyTuple_GetItem(args, 2 + 2 * k), true, 2, g, n);
    for (Py_ssize_t r = 0; fits && r < g; r++)
        for (int k = 0; k < pairs; k++)
            products(of(&a, ROWS, r), a.views[ROWS].strides[1] / 8, of(&a, VECTORS + k, r), n, d, of(&a, RESULTS + k, r));
    return released(&a);
}

PyDoc_STRVAR(clipped_sums_doc, "clipped_sums(rows, norms, least, divisor, *filled)\n--\n\n"
                               "Fill arrays with sums over rows (g, n, d), each times its coefficient, over a divisor.\n\n"
                               "norms, least: as of `clip`. filled: coefficients (g, n), which are clipped as `clip` does, "
                               "their bound, the sums (g, d); and so on.");

static PyObject *clipped_sums(PyObject *Py_UNUSED(module), PyObject *args) {
    Arrays a = {.got = {false}};
    Py_ssize_t given = PyTuple_Size(args);
    if (given % 3 != 1 || given < 4 || given > 4 + 3 * FILLED)
        return PyErr_Format(PyExc_TypeError, "wanted rows, norms, least, divisor, and at most %d triples", FILLED);
    double least = PyFloat_AsDouble(PyTuple_GetItem(args, 2)), divisor = PyFloat_AsDouble(PyTuple_GetItem(args, 3));
    if (PyErr_Occurred() || !get(&a, ROWS, PyTuple_GetItem(args, 0), false, 3, -1, -1)) return released(&a);
    Py_ssize_t g = a.views[ROWS].shape[0], n = a.views[ROWS].shape[1], d = a.views[ROWS].shape[2];
    double bounds[FILLED];
    int triples = (int)(given / 3) - 1;
    bool fits = (n && d ? true : refused()) && get(&a, NORMS, PyTuple_GetItem(args, 1), false, 2, g, n);
    for (int k = 0; fits && k < triples; k++) {
        bounds[k] = PyFloat_AsDouble(PyTuple_GetItem(args, 5 + 3 * k));
        fits = !PyErr_Occurred() && get(&a, COEFFICIENTS + k, PyTuple_GetItem(args, 4 + 3 * k), true, 2, g, n) &&
               get(&a, RESULTS + k, PyTuple_GetItem(args, 6 + 3 * k), true, 2, g, d);
    }
    /* Agent by agent, whose rows are still in cache. */
    for (Py_ssize_t r = 0; fits && r < g; r++)
        for (int k = 0; k < triples; k++) {
            double *c = of(&a, COEFFICIENTS + k, r);
            clip_row(c, of(&a, NORMS, r), n, bounds[k], least);
            sums(c, of(&a, ROWS, r), a.views[ROWS].strides[1] / 8, n, d, divisor, of(&a, RESULTS + k, r));
        }
    return released(&a);
}

PyDoc_STRVAR(mix_doc, "mix(ends, columns, weights, messages, out)\n--\n\n"
                      "Add to out (b, d) what each of its rows hears: messages (c, d) times weights, of a sparse matrix by "
                      "rows, with int64 ends (b + 1,) and columns (k,).");

static PyObject *mix(PyObject *Py_UNUSED(module), PyObject *args) {
    PyObject *ends, *columns, *weights, *messages, *out;
    Arrays a = {.got = {false}};
    if (!PyArg_ParseTuple(args, "OOOOO", &ends, &columns, &weights, &messages, &out)) return NULL;
    if (get(&a, OUT, out, true, 2, -1, -1)) {
        Py_ssize_t b = a.views[OUT].shape[0], d = a.views[OUT].shape[1];
        if (get_as("lq", &a, ENDS, ends, false, 1, b + 1, -1) && get_as("lq", &a, COLUMNS, columns, false, 1, -1, -1) &&
            get(&a, WEIGHTS, weights, false, 1, a.views[COLUMNS].shape[0], -1) &&
            get(&a, MESSAGES, messages, false, 2, -1, d)) {
            const int64_t *end = a.views[ENDS].buf, *column = a.views[COLUMNS].buf;
            const double *weight = a.views[WEIGHTS].buf;
            Py_ssize_t k = 0, heard = a.views[COLUMNS].shape[0], c = a.views[MESSAGES].shape[0];
            for (Py_ssize_t r = 0; r < b && !PyErr_Occurred(); r++)
                for (; k < end[r + 1] && (k < heard && column[k] >= 0 && column[k] < c ? true : refused()); k++)
                    add_row(weight[k], of(&a, MESSAGES, column[k]), d, of(&a, OUT, r));
        }
    }
    return released(&a);
}

PyDoc_STRVAR(logistic_doc, "logistic(exp_t, along, slope)\n--\n\n"
                           "Fill slope (g, n), and exp_t with the curvature times along (g, n) where that is not None.");

static PyObject *logistic(PyObject *Py_UNUSED(module), PyObject *args) {
    PyObject *exp_t, *along, *slope;
    Arrays a = {.got = {false}};
    if (!PyArg_ParseTuple(args, "OOO", &exp_t, &along, &slope)) return NULL;
    if (get(&a, EXP, exp_t, true, 2, -1, -1)) {
        Py_ssize_t g = a.views[EXP].shape[0], n = a.views[EXP].shape[1];
        if (get(&a, SLOPE, slope, true, 2, g, n) && (along == Py_None || get(&a, ALONG, along, false, 2, g, n)))
            for (Py_ssize_t r = 0; r < g; r++)
                logistic_row(of(&a, EXP, r), a.got[ALONG] ? of(&a, ALONG, r) : NULL, n, of(&a, SLOPE, r));
    }
    return released(&a);
}

PyDoc_STRVAR(strengths_doc, "strengths(e, y, z, by_y, by_z, by_both)\n--\n\n"
                            "Fill the last three with e·y, e·z and e·y·z + 0.0, all (g, d).");

static PyObject *strengths(PyObject *Py_UNUSED(module), PyObject *args) {
    PyObject *of_call[MOST];
    Arrays a = {.got = {false}};
    if (!PyArg_ParseTuple(args, "OOOOOO", of_call, of_call + 1, of_call + 2, of_call + 3, of_call + 4, of_call + 5)) return NULL;
    bool fits = get(&a, 0, of_call[0], false, 2, -1, -1);
    for (int k = 1; fits && k < 6; k++) fits = get(&a, k, of_call[k], k > 2, 2, a.views[0].shape[0], a.views[0].shape[1]);
    for (Py_ssize_t r = 0; fits && r < a.views[0].shape[0]; r++)
        strengths_row(of(&a, 0, r), of(&a, 1, r), of(&a, 2, r), a.views[0].shape[1], of(&a, 3, r), of(&a, 4, r), of(&a, 5, r));
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
                                {"logistic", logistic, METH_VARARGS, logistic_doc},
                                {"strengths", strengths, METH_VARARGS, strengths_doc},
                                {"mix", mix, METH_VARARGS, mix_doc},
                                {"step", step, METH_VARARGS, step_doc},
                                {NULL, NULL, 0, NULL}};
static PyModuleDef_Slot slots[] = {{0, NULL}};
static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT, "_linear_terms", "Sums over small shards, and clips.", 0, methods, slots, NULL, NULL, NULL};

PyMODINIT_FUNC PyInit__linear_terms(void) { return PyModuleDef_Init(&definition); }
