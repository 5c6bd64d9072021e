/* Products, norms and weighted sums of the records of many agents in one call, for linear models with one output.

   The order of all operations is stated, so that the bits depend neither on the processor nor on other agents, and
   `linear_terms.py` computes the same bits with numpy. Products and sums must not be contracted.
*/

#include "../_arrays.h"

#include <math.h>
#include <string.h>

/* Coordinate j of a record belongs to lane j mod 8. Lanes are summed separately, and then in pairs. */
#define LANES 8
/* Records whose products are computed together. */
#define MOST 4

#define TOTAL(s) ((((s)[0] + (s)[4]) + ((s)[2] + (s)[6])) + (((s)[1] + (s)[5]) + ((s)[3] + (s)[7])))

enum { NONE, L1, L2 };

/* Σ_j a_j v_j, and ‖a‖₁ or ‖a‖₂², of some consecutive records, which do not wait for one another. */
static inline __attribute__((always_inline)) void some_products(Row rows, Row v, const int records, Py_ssize_t d,
                                                                const int norm, double *restrict out,
                                                                double *restrict sizes) {
    double product[MOST][LANES] = {{0}}, size[MOST][LANES] = {{0}};
    Py_ssize_t j = 0;
    for (; j + LANES <= d; j += LANES)
        for (int k = 0; k < records; k++)
            for (int lane = 0; lane < LANES; lane++) {
                double x = rows[k * d + j + lane];
                product[k][lane] += x * v[j + lane];
                if (norm) size[k][lane] += norm == L1 ? fabs(x) : x * x;
            }
    for (int lane = 0; j < d; j++, lane++)
        for (int k = 0; k < records; k++) {
            double x = rows[k * d + j];
            product[k][lane] += x * v[j];
            if (norm) size[k][lane] += norm == L1 ? fabs(x) : x * x;
        }
    for (int k = 0; k < records; k++) {
        out[k] = TOTAL(product[k]);
        if (norm) sizes[k] = TOTAL(size[k]);
    }
}

static inline __attribute__((always_inline)) void all_products(Row rows, Row v, Py_ssize_t n, Py_ssize_t d, const int norm,
                                                               double *restrict out, double *restrict sizes) {
    Py_ssize_t k = 0;
    for (; k + MOST <= n; k += MOST) some_products(rows + k * d, v, MOST, d, norm, out + k, norm ? sizes + k : NULL);
    for (; k < n; k++) some_products(rows + k * d, v, 1, d, norm, out + k, norm ? sizes + k : NULL);
}

BY_PROCESSOR
static void products(Row rows, Row v, Py_ssize_t n, Py_ssize_t d, int norm, double *restrict out, double *restrict sizes) {
    if (norm == L2) all_products(rows, v, n, d, L2, out, sizes);
    else if (norm == L1) all_products(rows, v, n, d, L1, out, sizes);
    else all_products(rows, v, n, d, NONE, out, sizes);
}

/* Σ_k c_k a_k and Σ_k c_k, record after record. Records with c = 0 do not count, even if they are not finite. */
BY_PROCESSOR
static void sums(Row c, Row rows, Py_ssize_t n, Py_ssize_t d, double *restrict out, double *restrict total) {
    memset(out, 0, (size_t)d * sizeof *out);
    double of_agent = 0.0;
    for (Py_ssize_t k = 0; k < n; k++) {
        if (c[k] == 0.0) continue;
        Row a = rows + k * d;
        for (Py_ssize_t j = 0; j < d; j++) out[j] += c[k] * a[j];
        of_agent += c[k];
    }
    *total = of_agent;
}

static PyObject *refused(void) {
    PyErr_SetString(PyExc_ValueError, "expected contiguous float64 rows (N, d), counts (b,) that add up to N, and one "
                                      "vector (b, d) for each agent, or one coefficient (N,) for each row");
    return NULL;
}

/* The array, if it holds contiguous float64 numbers along so many axes, the last of this length. */
static PyArrayObject *numbers(PyObject *object, int axes, Py_ssize_t last) {
    PyArrayObject *a = array_of(object, NPY_DOUBLE, axes);
    return a && rows_contiguous(a) && (last < 0 || PyArray_DIM(a, axes - 1) == last) ? a : NULL;
}

/* A tuple of two new objects, which it takes over; NULL if one could not be made. */
static PyObject *pair(PyObject *first, PyObject *second) {
    PyObject *both = first && second ? PyTuple_Pack(2, first, second) : NULL;
    Py_XDECREF(first);
    Py_XDECREF(second);
    return both;
}

typedef struct {
    PyArrayObject *rows, *counts;
    Py_ssize_t N, d, b;
} Records;

static bool get_records(Records *r, PyObject *rows, PyObject *counts) {
    r->rows = numbers(rows, 2, -1);
    r->counts = array_of(counts, NPY_INT64, 1);
    if (!r->rows || !r->counts || !rows_contiguous(r->counts)) return false;
    r->N = PyArray_DIM(r->rows, 0), r->d = PyArray_DIM(r->rows, 1), r->b = PyArray_DIM(r->counts, 0);
    if (r->N > 1 && r->d && PyArray_STRIDE(r->rows, 0) != 8 * r->d) return false;
    Py_ssize_t sum = 0;
    const int64_t *n = PyArray_DATA(r->counts);
    for (Py_ssize_t i = 0; i < r->b; i++) {
        if (n[i] < 0 || n[i] > r->N - sum) return false;
        sum += n[i];
    }
    return sum == r->N;
}

PyDoc_STRVAR(forward_doc, "forward(rows, counts, vectors, norm)\n--\n\n"
                          "Return the product of every row and the vector of its agent, (N,), and the sizes of the rows.\n\n"
                          "rows: (N, d), agent after agent. counts: rows of each agent, (b,) int64. vectors: (b, d). norm: "
                          "0 for no sizes (None), 1 for \xE2\x80\x96" "a\xE2\x80\x96\xE2\x82\x81, 2 for "
                          "\xE2\x80\x96" "a\xE2\x80\x96\xE2\x82\x82\xC2\xB2, (N,).");

static PyObject *forward(PyObject *Py_UNUSED(module), PyObject *const *args, Py_ssize_t given) {
    Records r;
    if (given != 4 || !get_records(&r, args[0], args[1])) return refused();
    PyArrayObject *vectors = numbers(args[2], 2, r.d);
    long norm = PyLong_AsLong(args[3]);
    if (!vectors || PyArray_DIM(vectors, 0) != r.b || norm < NONE || norm > L2) return PyErr_Occurred() ? NULL : refused();
    npy_intp shape[] = {r.N};
    PyObject *out = PyArray_SimpleNew(1, shape, NPY_DOUBLE);
    PyObject *sizes = norm ? PyArray_SimpleNew(1, shape, NPY_DOUBLE) : Py_NewRef(Py_None);
    if (out && sizes) {
        double *to = PyArray_DATA((PyArrayObject *)out), *size = norm ? PyArray_DATA((PyArrayObject *)sizes) : NULL;
        const int64_t *n = PyArray_DATA(r.counts);
        Row from = PyArray_DATA(r.rows);
        Py_BEGIN_ALLOW_THREADS
        for (Py_ssize_t i = 0; i < r.b; i++) {
            products(from, row_of(vectors, i), n[i], r.d, (int)norm, to, size);
            from += n[i] * r.d, to += n[i], size += norm ? n[i] : 0;
        }
        Py_END_ALLOW_THREADS
    }
    return pair(out, sizes);
}

PyDoc_STRVAR(weighted_sums_doc, "weighted_sums(coefficients, rows, counts)\n--\n\n"
                                "Return the sums of rows times coefficients, (b, d), and of coefficients, (b,).\n\n"
                                "coefficients: (N,). For the other arguments see `forward`.");

static PyObject *weighted_sums(PyObject *Py_UNUSED(module), PyObject *const *args, Py_ssize_t given) {
    Records r;
    if (given != 3 || !get_records(&r, args[1], args[2])) return refused();
    PyArrayObject *coefficients = numbers(args[0], 1, r.N);
    if (!coefficients) return refused();
    npy_intp shape[] = {r.b, r.d};
    PyObject *out = PyArray_SimpleNew(2, shape, NPY_DOUBLE), *totals = PyArray_SimpleNew(1, shape, NPY_DOUBLE);
    if (out && totals) {
        const int64_t *n = PyArray_DATA(r.counts);
        Row from = PyArray_DATA(r.rows), c = PyArray_DATA(coefficients);
        double *to = PyArray_DATA((PyArrayObject *)out), *total = PyArray_DATA((PyArrayObject *)totals);
        Py_BEGIN_ALLOW_THREADS
        for (Py_ssize_t i = 0; i < r.b; i++) {
            sums(c, from, n[i], r.d, to, total + i);
            from += n[i] * r.d, c += n[i], to += r.d;
        }
        Py_END_ALLOW_THREADS
    }
    return pair(out, totals);
}

static PyMethodDef methods[] = {
    FUNCTION(forward, forward_doc), FUNCTION(weighted_sums, weighted_sums_doc), {NULL, NULL, 0, NULL}};
static PyModuleDef_Slot slots[] = {{Py_mod_exec, use_arrays}, {0, NULL}};
static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT, "_linear", "Products and sums of the records of many agents.", 0, methods, slots, NULL, NULL, NULL};

PyMODINIT_FUNC PyInit__linear(void) { return PyModuleDef_Init(&definition); }
