/* Sums over small shards, and clips by one number for each record: to the bit what `linear_terms.py` has numpy compute.

   Every operation is one of IEEE 754 on float64, in the order that is stated; products and sums must not be contracted.
*/

#include "../_arrays.h"

#include <math.h>
#include <string.h>

/* Numbers of a row that are added up before the next ones, 16 KiB, which stay in a core's first cache. */
#define CACHED 2048

/* c·min(1, bound/(|c|·norm)); 0 where the factor is below `least`, or anything on the way is no number. */
static inline double clipped(double c, double norm, double bound, double least) {
    double factor = bound / (fabs(c) * norm);
    /* Written so that NaN stays NaN. */
    factor = factor > 1.0 ? 1.0 : factor;
    c *= factor < least ? 0.0 : factor;
    return c == c ? c : 0.0;
}

BY_PROCESSOR
static void clip_row(double *restrict coefficients, Row norms, Py_ssize_t n, double bound, double least) {
    for (Py_ssize_t k = 0; k < n; k++) coefficients[k] = clipped(coefficients[k], norms[k], bound, least);
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

/* Σ_k a_k·min(1, bound/‖a_k‖) over a divisor, in that order too; a row whose norm is not finite is one of zeros. */
BY_PROCESSOR
static void row_sums(Row rows, Py_ssize_t stride, Py_ssize_t n, Py_ssize_t d, bool l1, double bound, double least,
                     double divisor, double *restrict out) {
    for (Py_ssize_t k = 0; k < n; k++) {
        Row a = rows + k * stride;
        double norm = l1 ? fabs(a[0]) : a[0] * a[0];
        for (Py_ssize_t j = 1; j < d; j++) norm += l1 ? fabs(a[j]) : a[j] * a[j];
        norm = l1 ? norm : sqrt(norm);
        double c = clipped(1.0, norm, bound, least);
        for (Py_ssize_t j = 0; j < d; j++) out[j] = (k ? out[j] : -0.0) + (isfinite(norm) ? c * a[j] : 0.0);
    }
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

/* c + β(c − l) */
BY_PROCESSOR
static void extrapolate_row(Row c, Row l, double beta, Py_ssize_t n, double *restrict out) {
    for (Py_ssize_t j = 0; j < n; j++) out[j] = (c[j] - l[j]) * beta + c[j];
}

/* out + w·m */
BY_PROCESSOR
static void add_row(double w, Row m, Py_ssize_t d, double *restrict out) {
    for (Py_ssize_t j = 0; j < d; j++) out[j] += w * m[j];
}

static PyObject *refused(void) {
    PyErr_SetString(PyExc_ValueError, "wanted float64 arrays of the same agents, records and features, rows contiguous");
    return NULL;
}

/* Arrays of float64 of this shape (g, n) or (g, n, d), any length where it says -1; NULL with an exception for others. */
static PyArrayObject *get(PyObject *object, int axes, Py_ssize_t g, Py_ssize_t n) {
    PyArrayObject *a = array_of(object, NPY_DOUBLE, axes);
    bool fits = a && (g < 0 || PyArray_DIM(a, 0) == g) && (n < 0 || PyArray_DIM(a, 1) == n) && rows_contiguous(a);
    return fits ? a : (PyArrayObject *)refused();
}

static PyArrayObject *get_written(PyObject *object, Py_ssize_t g, Py_ssize_t n) {
    PyArrayObject *a = get(object, 2, g, n);
    return a && writable(a) ? a : NULL;
}

static bool get_numbers(PyObject *const *objects, Py_ssize_t n, double *numbers) {
    for (Py_ssize_t k = 0; k < n; k++) numbers[k] = PyFloat_AsDouble(objects[k]);
    return !PyErr_Occurred();
}

static const void *data_of(PyObject *array) { return PyArray_DATA((PyArrayObject *)array); }

/* So many new arrays (g, d), not filled yet. */
static PyObject *new_arrays(Py_ssize_t number, Py_ssize_t g, Py_ssize_t d) {
    PyObject *arrays = PyTuple_New(number);
    npy_intp shape[] = {g, d};
    for (Py_ssize_t k = 0; arrays && k < number; k++) {
        PyObject *array = PyArray_SimpleNew(2, shape, NPY_DOUBLE);
        if (!array) Py_CLEAR(arrays);
        else PyTuple_SetItem(arrays, k, array);
    }
    return arrays;
}

PyDoc_STRVAR(clip_doc, "clip(coefficients, norms, bound, least)\n--\n\n"
                       "Clip coefficients (g, n) in place, each by the norm (g, n) of what it multiplies.");

static PyObject *clip(PyObject *Py_UNUSED(module), PyObject *const *args, Py_ssize_t given) {
    double numbers[2];
    if (given != 4) return PyErr_Format(PyExc_TypeError, "wanted coefficients, norms, bound, least");
    PyArrayObject *c = get_written(args[0], -1, -1);
    if (!c || !get_numbers(args + 2, 2, numbers)) return NULL;
    Py_ssize_t g = PyArray_DIM(c, 0), n = PyArray_DIM(c, 1);
    PyArrayObject *norms = get(args[1], 2, g, n);
    if (!norms) return NULL;
    for (Py_ssize_t r = 0; r < g; r++) clip_row(row_of(c, r), row_of(norms, r), n, numbers[0], numbers[1]);
    return Py_NewRef(Py_None);
}

PyDoc_STRVAR(forward_doc, "forward(rows, *vectors)\n--\n\n"
                          "The products (g, n) of rows (g, n, d) and each of the vectors (g, d) of their agents.");

static PyObject *forward(PyObject *Py_UNUSED(module), PyObject *const *args, Py_ssize_t given) {
    if (given < 1) return PyErr_Format(PyExc_TypeError, "wanted rows");
    PyArrayObject *rows = get(args[0], 3, -1, -1);
    if (!rows) return NULL;
    Py_ssize_t g = PyArray_DIM(rows, 0), n = PyArray_DIM(rows, 1), d = PyArray_DIM(rows, 2), count = given - 1;
    if (!n || !d) return refused();
    for (Py_ssize_t k = 0; k < count; k++)
        if (!get(args[1 + k], 2, g, d)) return NULL;
    PyObject *made = new_arrays(count, g, n);
    for (Py_ssize_t r = 0; made && r < g; r++)
        for (Py_ssize_t k = 0; k < count; k++)
            products(row_of(rows, r), PyArray_STRIDE(rows, 1) / 8, row_of((PyArrayObject *)args[1 + k], r), n, d,
                     row_of((PyArrayObject *)PyTuple_GetItem(made, k), r));
    return made;
}

PyDoc_STRVAR(clipped_sums_doc, "clipped_sums(rows, norms, bounds, smallest, least, divisor, *coefficients)\n--\n\n"
                               "The sums (g, d) over rows (g, n, d), each times its coefficient (g, n), over a divisor.\n\n"
                               "Coefficients are clipped before, as by `clip`, each array to its bound, which counts as 0 "
                               "below the smallest.");

static PyObject *clipped_sums(PyObject *Py_UNUSED(module), PyObject *const *args, Py_ssize_t given) {
    enum { SMALLEST, LEAST, DIVISOR, NUMBERS, FIRST = 3 + NUMBERS, MOST = 4 };
    double numbers[NUMBERS], bounds[MOST];
    Py_ssize_t count = given - FIRST;
    if (count < 0 || count > MOST || PySequence_Size(args[2]) != count)
        return PyErr_Format(PyExc_TypeError, "wanted a bound for each of at most %d arrays of coefficients", MOST);
    PyArrayObject *rows = get(args[0], 3, -1, -1);
    if (!rows || !get_numbers(args + 3, NUMBERS, numbers)) return NULL;
    Py_ssize_t g = PyArray_DIM(rows, 0), n = PyArray_DIM(rows, 1), d = PyArray_DIM(rows, 2);
    PyArrayObject *norms = get(args[1], 2, g, n);
    if (!norms || !n || !d) return refused();
    for (Py_ssize_t k = 0; k < count; k++) {
        if (!get_written(args[FIRST + k], g, n)) return NULL;
        PyObject *bound = PySequence_GetItem(args[2], k);
        bounds[k] = bound ? PyFloat_AsDouble(bound) : 0.0;
        Py_XDECREF(bound);
        if (PyErr_Occurred()) return NULL;
        /* Written so that NaN lets nothing through. */
        if (!(bounds[k] >= numbers[SMALLEST])) bounds[k] = 0.0;
    }
    PyObject *made = new_arrays(count, g, d);
    /* Agent by agent, whose rows are still in cache. */
    for (Py_ssize_t r = 0; made && r < g; r++)
        for (Py_ssize_t k = 0; k < count; k++) {
            double *c = row_of((PyArrayObject *)args[FIRST + k], r);
            clip_row(c, row_of(norms, r), n, bounds[k], numbers[LEAST]);
            sums(c, row_of(rows, r), PyArray_STRIDE(rows, 1) / 8, n, d, numbers[DIVISOR],
                 row_of((PyArrayObject *)PyTuple_GetItem(made, k), r));
        }
    return made;
}

PyDoc_STRVAR(clipped_row_sums_doc, "clipped_row_sums(rows, l1, bound, least, divisor)\n--\n\n"
                                   "The sums (g, d) over rows (g, n, d), each clipped by its l1 or l2 norm, over a divisor.");

static PyObject *clipped_row_sums(PyObject *Py_UNUSED(module), PyObject *const *args, Py_ssize_t given) {
    enum { BOUND, LEAST, DIVISOR, NUMBERS };
    double numbers[NUMBERS];
    if (given != 2 + NUMBERS) return PyErr_Format(PyExc_TypeError, "wanted rows, l1, bound, least, divisor");
    PyArrayObject *rows = get(args[0], 3, -1, -1);
    if (!rows || !get_numbers(args + 2, NUMBERS, numbers)) return NULL;
    npy_intp g = PyArray_DIM(rows, 0), n = PyArray_DIM(rows, 1), d = PyArray_DIM(rows, 2), shape[] = {g, d};
    if (!n || !d) return refused();
    PyObject *out = PyArray_SimpleNew(2, shape, NPY_DOUBLE);
    for (Py_ssize_t r = 0; out && r < g; r++)
        row_sums(row_of(rows, r), PyArray_STRIDE(rows, 1) / 8, n, d, args[1] == Py_True, numbers[BOUND], numbers[LEAST],
                 numbers[DIVISOR], row_of((PyArrayObject *)out, r));
    return out;
}

PyDoc_STRVAR(mix_doc, "mix(out, *by_message)\n--\n\n"
                      "Fill out (b, d) with what each of its rows hears: for every message ends (b + 1,) and columns (k,) in "
                      "int64 and weights (k,) of a sparse matrix by rows, and the messages (c, d) that these multiply.");

static PyObject *mix(PyObject *Py_UNUSED(module), PyObject *const *args, Py_ssize_t given) {
    if (given % 4 != 1) return PyErr_Format(PyExc_TypeError, "wanted out, and ends, columns, weights, messages of each");
    PyArrayObject *out = get_written(args[0], -1, -1);
    if (!out) return NULL;
    Py_ssize_t b = PyArray_DIM(out, 0), d = PyArray_DIM(out, 1);
    for (PyObject *const *m = args + 1; m < args + given; m += 4) {
        PyArrayObject *ends = array_of(m[0], NPY_INT64, 1), *columns = array_of(m[1], NPY_INT64, 1);
        if (!ends || !columns || !rows_contiguous(ends) || !rows_contiguous(columns)) return refused();
        Py_ssize_t heard = PyArray_DIM(columns, 0);
        PyArrayObject *messages = get(m[2], 1, heard, -1) ? get(m[3], 2, -1, d) : NULL;
        if (!messages) return NULL;
        const npy_int64 *end = PyArray_DATA(ends), *column = PyArray_DATA(columns);
        if (PyArray_DIM(ends, 0) != b + 1 || end[0] != 0 || end[b] != heard) return refused();
        for (Py_ssize_t r = 0; r < b; r++)
            if (end[r] > end[r + 1]) return refused();
        for (Py_ssize_t k = 0; k < heard; k++)
            if (column[k] < 0 || column[k] >= PyArray_DIM(messages, 0)) return refused();
    }
    for (Py_ssize_t r = 0; r < b; r++)
        for (Py_ssize_t first = 0; first < d; first += CACHED) {
            Py_ssize_t n = d - first < CACHED ? d - first : CACHED;
            double *to = (double *)row_of(out, r) + first;
            memset(to, 0, n * sizeof *to);
            for (PyObject *const *m = args + 1; m < args + given; m += 4) {
                const npy_int64 *end = data_of(m[0]), *column = data_of(m[1]);
                const double *weight = data_of(m[2]);
                for (npy_int64 k = end[r]; k < end[r + 1]; k++)
                    add_row(weight[k], (Row)row_of((PyArrayObject *)m[3], column[k]) + first, n, to);
            }
        }
    return Py_NewRef(Py_None);
}

PyDoc_STRVAR(logistic_doc, "logistic(exp_t, along)\n--\n\n"
                           "The slopes (g, n), and in exp_t the curvatures times along (g, n) where that is not None.");

static PyObject *logistic(PyObject *Py_UNUSED(module), PyObject *const *args, Py_ssize_t given) {
    if (given != 2) return PyErr_Format(PyExc_TypeError, "wanted exp_t and along");
    PyArrayObject *exp_t = get_written(args[0], -1, -1), *along = NULL;
    if (!exp_t) return NULL;
    npy_intp g = PyArray_DIM(exp_t, 0), n = PyArray_DIM(exp_t, 1);
    if (args[1] != Py_None && !(along = get(args[1], 2, g, n))) return NULL;
    PyObject *slope = PyArray_SimpleNew(2, PyArray_DIMS(exp_t), NPY_DOUBLE);
    for (Py_ssize_t r = 0; slope && r < g; r++)
        logistic_row(row_of(exp_t, r), along ? row_of(along, r) : NULL, n, row_of((PyArrayObject *)slope, r));
    return slope;
}

PyDoc_STRVAR(strengths_doc, "strengths(e, y, z)\n--\n\ne·y, e·z and e·y·z + 0.0, all (g, d).");

static PyObject *strengths(PyObject *Py_UNUSED(module), PyObject *const *args, Py_ssize_t given) {
    if (given != 3) return PyErr_Format(PyExc_TypeError, "wanted e, y, z");
    PyArrayObject *e = get(args[0], 2, -1, -1), *out[3];
    if (!e) return NULL;
    Py_ssize_t g = PyArray_DIM(e, 0), d = PyArray_DIM(e, 1);
    PyArrayObject *y = get(args[1], 2, g, d), *z = y ? get(args[2], 2, g, d) : NULL;
    PyObject *made = z ? new_arrays(3, g, d) : NULL;
    for (int k = 0; made && k < 3; k++) out[k] = (PyArrayObject *)PyTuple_GetItem(made, k);
    for (Py_ssize_t r = 0; made && r < g; r++)
        strengths_row(row_of(e, r), row_of(y, r), row_of(z, r), d, row_of(out[0], r), row_of(out[1], r), row_of(out[2], r));
    return made;
}

PyDoc_STRVAR(step_doc, "step(kept, own, near, size, direction)\n--\n\n"
                       "kept·own + near - size·direction (g, d), kept (g, 1), the others (g, d).");

static PyObject *step(PyObject *Py_UNUSED(module), PyObject *const *args, Py_ssize_t given) {
    double size;
    if (given != 5) return PyErr_Format(PyExc_TypeError, "wanted kept, own, near, size, direction");
    PyArrayObject *near = get(args[2], 2, -1, -1);
    if (!near || !get_numbers(args + 3, 1, &size)) return NULL;
    Py_ssize_t g = PyArray_DIM(near, 0), d = PyArray_DIM(near, 1);
    PyArrayObject *kept = get(args[0], 2, g, 1), *own = get(args[1], 2, g, d), *direction = get(args[4], 2, g, d);
    if (!kept || !own || !direction) return NULL;
    PyObject *out = PyArray_SimpleNew(2, PyArray_DIMS(near), NPY_DOUBLE);
    for (Py_ssize_t r = 0; out && r < g; r++)
        step_row(*(double *)row_of(kept, r), row_of(own, r), row_of(near, r), size, row_of(direction, r), d,
                 row_of((PyArrayObject *)out, r));
    return out;
}

PyDoc_STRVAR(extrapolate_doc, "extrapolate(now, before, beta)\n--\n\nnow + β·(now - before), all (g, d).");

static PyObject *extrapolate(PyObject *Py_UNUSED(module), PyObject *const *args, Py_ssize_t given) {
    double beta;
    if (given != 3) return PyErr_Format(PyExc_TypeError, "wanted now, before, beta");
    PyArrayObject *now = get(args[0], 2, -1, -1);
    if (!now || !get_numbers(args + 2, 1, &beta)) return NULL;
    Py_ssize_t g = PyArray_DIM(now, 0), d = PyArray_DIM(now, 1);
    PyArrayObject *before = get(args[1], 2, g, d);
    PyObject *out = before ? PyArray_SimpleNew(2, PyArray_DIMS(now), NPY_DOUBLE) : NULL;
    for (Py_ssize_t r = 0; out && r < g; r++)
        extrapolate_row(row_of(now, r), row_of(before, r), beta, d, row_of((PyArrayObject *)out, r));
    return out;
}

static PyMethodDef methods[] = {FUNCTION(clip, clip_doc),
                                FUNCTION(forward, forward_doc),
                                FUNCTION(clipped_sums, clipped_sums_doc),
                                FUNCTION(clipped_row_sums, clipped_row_sums_doc),
                                FUNCTION(logistic, logistic_doc),
                                FUNCTION(strengths, strengths_doc),
                                FUNCTION(mix, mix_doc),
                                FUNCTION(step, step_doc),
                                FUNCTION(extrapolate, extrapolate_doc),
                                {NULL, NULL, 0, NULL}};
static PyModuleDef_Slot slots[] = {{Py_mod_exec, use_arrays}, {0, NULL}};
static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT, "_linear_terms", "Sums over small shards, and clips.", 0, methods, slots, NULL, NULL, NULL};

PyMODINIT_FUNC PyInit__linear_terms(void) { return PyModuleDef_Init(&definition); }
