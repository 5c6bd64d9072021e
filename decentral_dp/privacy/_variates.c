/* Variates of many keyed streams in one call: to the bit what numpy's generators draw, one stream after another.

   A stream is Philox4x64-10 (Salmon, Moraes, Dror and Shaw, 2011) with the key of an agent and the counter
   (block, 0, index, tag), blocks numbered from 1; each block is four 64-bit numbers. numpy turns a number into a normal
   or exponential variate by a ziggurat of 256 layers (Marsaglia and Tsang, 2000): some bits choose a layer, the others
   are multiplied by its width, and 99 % of these products are returned as they are. That is done here; for the rest
   numpy's own function is called. Widths and limits of the layers are read off that function when the module is loaded.
*/

#define Py_LIMITED_API 0x030B0000
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include "numpy/random/distributions.h"

/* So many blocks are made at a time: their multiplications do not wait for one another. */
#define BLOCKS 4
#define NUMBERS (4 * BLOCKS)
#define LAYERS 256

enum { EXPONENTIAL, UNIFORM, NORMAL, KINDS };

typedef struct {
    uint64_t key[2], index, tag;
    uint64_t made; /* blocks so far */
    uint64_t numbers[NUMBERS];
    Py_ssize_t next;
} Stream;

static inline void multiply(uint64_t a, uint64_t b, uint64_t *high, uint64_t *low) {
    unsigned __int128 product = (unsigned __int128)a * b;
    *high = (uint64_t)(product >> 64);
    *low = (uint64_t)product;
}

static void make_blocks(Stream *s) {
    for (int k = 0; k < BLOCKS; k++) {
        uint64_t a = ++s->made, b = 0, c = s->index, d = s->tag, key0 = s->key[0], key1 = s->key[1];
        for (int round = 0; round < 10; round++) {
            uint64_t high0, low0, high1, low1;
            multiply(0xD2E7470EE14C6C93u, a, &high0, &low0);
            multiply(0xCA5A826395121157u, c, &high1, &low1);
            a = high1 ^ b ^ key0;
            b = low1;
            c = high0 ^ d ^ key1;
            d = low0;
            key0 += 0x9E3779B97F4A7C15u;
            key1 += 0xBB67AE8584CAA73Bu;
        }
        uint64_t *numbers = s->numbers + 4 * k;
        numbers[0] = a;
        numbers[1] = b;
        numbers[2] = c;
        numbers[3] = d;
    }
    s->next = 0;
}

static inline uint64_t next_number(Stream *s) {
    if (s->next == NUMBERS) make_blocks(s);
    return s->numbers[s->next++];
}

static uint64_t stream_uint64(void *s) { return next_number(s); }
static uint32_t stream_uint32(void *s) { return (uint32_t)(next_number(s) >> 32); }
static double stream_double(void *s) { return (double)(int64_t)(next_number(s) >> 11) * 0x1p-53; }

/* Of each layer: its width, and the first magnitude that is not returned at once; 0 where none is. */
typedef struct {
    double width[LAYERS];
    int64_t limit[LAYERS];
} Ziggurat;

static Ziggurat exponential, normal;

/* A generator that gives one number, then some with which any rejection ends; and counts. */
typedef struct {
    uint64_t number;
    int calls;
} Probe;

static uint64_t probe_uint64(void *p) {
    Probe *probe = p;
    return probe->calls++ ? (2u << 3 | 2u) : probe->number;
}
static uint32_t probe_uint32(void *p) { return (uint32_t)probe_uint64(p); }
static double probe_double(void *p) {
    ((Probe *)p)->calls++;
    return 0.5;
}

/* Whether numpy returns the product of this magnitude and the layer's width at once. */
static bool at_once(int kind, uint64_t layer, uint64_t magnitude, double *variate) {
    Probe probe = {kind == NORMAL ? magnitude << 9 | layer : magnitude << 11 | layer << 3, 0};
    bitgen_t bits = {&probe, probe_uint64, probe_uint32, probe_double, probe_uint64};
    *variate = kind == NORMAL ? random_standard_normal(&bits) : random_standard_exponential(&bits);
    return probe.calls == 1;
}

static void read_off(int kind, Ziggurat *z) {
    for (uint64_t layer = 0; layer < LAYERS; layer++) {
        double variate;
        z->limit[layer] = 0;
        if (!at_once(kind, layer, 1, &z->width[layer])) continue;
        uint64_t returned = 1, rejected = (uint64_t)1 << (kind == NORMAL ? 52 : 53);
        while (rejected - returned > 1) {
            uint64_t middle = returned + (rejected - returned) / 2;
            if (at_once(kind, layer, middle, &variate)) returned = middle;
            else rejected = middle;
        }
        z->limit[layer] = (int64_t)rejected;
    }
}

/* Each returns how many variates it made before one that numpy's function has to make. */

static inline Py_ssize_t uniforms(const uint64_t *numbers, Py_ssize_t n, double *out) {
    for (Py_ssize_t i = 0; i < n; i++) out[i] = (double)(int64_t)(numbers[i] >> 11) * 0x1p-53;
    return n;
}

static inline Py_ssize_t exponentials(const uint64_t *numbers, Py_ssize_t n, double *out) {
    for (Py_ssize_t i = 0; i < n; i++) {
        uint64_t layer = numbers[i] >> 3 & 0xff;
        int64_t magnitude = (int64_t)(numbers[i] >> 11);
        out[i] = (double)magnitude * exponential.width[layer];
        if (magnitude >= exponential.limit[layer]) return i;
    }
    return n;
}

static inline Py_ssize_t normals(const uint64_t *numbers, Py_ssize_t n, double *out) {
    for (Py_ssize_t i = 0; i < n; i++) {
        uint64_t layer = numbers[i] & 0xff, sign = numbers[i] >> 8 & 1;
        int64_t magnitude = (int64_t)(numbers[i] >> 9 & 0x000fffffffffffff);
        double variate = (double)magnitude * normal.width[layer];
        /* Not by a branch: half of them would be foreseen wrongly. */
        uint64_t bits;
        memcpy(&bits, &variate, sizeof bits);
        bits |= sign << 63;
        memcpy(&out[i], &bits, sizeof bits);
        if (magnitude >= normal.limit[layer]) return i;
    }
    return n;
}

static void fill_row(Stream *s, int kind, double *out, Py_ssize_t n) {
    bitgen_t bits = {s, stream_uint64, stream_uint32, stream_double, stream_uint64};
    while (n > 0) {
        if (s->next == NUMBERS) make_blocks(s);
        const uint64_t *numbers = s->numbers + s->next;
        Py_ssize_t most = NUMBERS - s->next < n ? NUMBERS - s->next : n;
        Py_ssize_t made = kind == UNIFORM       ? uniforms(numbers, most, out)
                          : kind == EXPONENTIAL ? exponentials(numbers, most, out)
                                                : normals(numbers, most, out);
        s->next += made;
        if (made < most) out[made++] = kind == NORMAL ? random_standard_normal(&bits) : random_standard_exponential(&bits);
        out += made;
        n -= made;
    }
}

/* A two-dimensional array of 8-byte items whose rows are contiguous. */
static int get_rows(PyObject *array, int flags, Py_ssize_t rows, Py_buffer *view) {
    if (PyObject_GetBuffer(array, view, flags | PyBUF_STRIDES) < 0) return -1;
    if (view->ndim == 2 && view->itemsize == 8 && view->shape[0] == rows &&
        (view->shape[1] < 2 || view->strides[1] == 8))
        return 0;
    PyErr_Format(PyExc_ValueError, "wanted %zd rows of contiguous 8-byte numbers", rows);
    PyBuffer_Release(view);
    return -1;
}

PyDoc_STRVAR(fill_doc, "fill(keys, used, index, tag, kind, out)\n--\n\n"
                       "Fill row after row with variates of the stream of its key.\n\n"
                       "keys: (b, 2) uint64. used: (b, 1) uint64, numbers taken from each stream so far; advanced. "
                       "index, tag: of the counter. kind: of the variates. out: (b, n) float64.");

static PyObject *fill(PyObject *Py_UNUSED(module), PyObject *args) {
    PyObject *keys_array, *used_array, *out_array, *result = NULL;
    unsigned long long index, tag;
    int kind;
    if (!PyArg_ParseTuple(args, "OOKKiO", &keys_array, &used_array, &index, &tag, &kind, &out_array)) return NULL;
    if (kind < 0 || kind >= KINDS) return PyErr_Format(PyExc_ValueError, "no kind of variates has the number %d", kind);
    Py_buffer keys, used, out;
    if (PyObject_GetBuffer(out_array, &out, PyBUF_WRITABLE | PyBUF_STRIDES) < 0) return NULL;
    Py_ssize_t rows = out.ndim == 2 ? out.shape[0] : -1;
    PyBuffer_Release(&out);
    if (get_rows(out_array, PyBUF_WRITABLE, rows, &out) < 0) return NULL;
    if (get_rows(keys_array, 0, rows, &keys) < 0) goto release_out;
    if (get_rows(used_array, PyBUF_WRITABLE, rows, &used) < 0) goto release_keys;
    if (keys.shape[1] != 2 || used.shape[1] != 1) {
        PyErr_SetString(PyExc_ValueError, "wanted two numbers of each key, and one of what is used");
        goto release_used;
    }
    Py_BEGIN_ALLOW_THREADS
    for (Py_ssize_t r = 0; r < rows; r++) {
        const uint64_t *key = (const uint64_t *)((char *)keys.buf + r * keys.strides[0]);
        uint64_t *taken = (uint64_t *)((char *)used.buf + r * used.strides[0]);
        Stream s = {{key[0], key[1]}, index, tag, *taken / 4, {0}, NUMBERS};
        if (*taken % 4) {
            make_blocks(&s);
            s.next = (Py_ssize_t)(*taken % 4);
        }
        fill_row(&s, kind, (double *)((char *)out.buf + r * out.strides[0]), out.shape[1]);
        *taken = 4 * s.made - (uint64_t)(NUMBERS - s.next);
    }
    Py_END_ALLOW_THREADS
    result = Py_NewRef(Py_None);
release_used:
    PyBuffer_Release(&used);
release_keys:
    PyBuffer_Release(&keys);
release_out:
    PyBuffer_Release(&out);
    return result;
}

static int prepare(PyObject *module) {
    read_off(EXPONENTIAL, &exponential);
    read_off(NORMAL, &normal);
    return PyModule_AddIntMacro(module, EXPONENTIAL) < 0 || PyModule_AddIntMacro(module, UNIFORM) < 0 ||
                   PyModule_AddIntMacro(module, NORMAL) < 0
               ? -1
               : 0;
}

static PyMethodDef methods[] = {{"fill", fill, METH_VARARGS, fill_doc}, {NULL, NULL, 0, NULL}};
static PyModuleDef_Slot slots[] = {{Py_mod_exec, prepare}, {0, NULL}};
static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT, "_variates", "Variates of many keyed streams in one call.", 0, methods, slots, NULL, NULL, NULL};

PyMODINIT_FUNC PyInit__variates(void) { return PyModuleDef_Init(&definition); }
