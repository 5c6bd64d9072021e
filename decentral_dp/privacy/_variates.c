/* Variates of many keyed streams in one call: to the bit what numpy's generators draw, one stream after another.

   Where the numbers come from:

   Philox      Philox4x64-10 (Salmon, Moraes, Dror and Shaw, 2011) with the key of an agent and the counter
               (block, 0, index, tag), blocks numbered from 1; each block is four 64-bit numbers. Of seeded runs.
   Keystream   AES-256 in counter mode, by a cipher object of the package `cryptography` that has the key of an agent and
               a tag: block k is the cipher of the 16 bytes index | k, both big-endian, k from 0; two little-endian
               numbers each. Of secret runs.

   What is made of them: numpy turns a number into a normal or exponential variate by a ziggurat of 256 layers (Marsaglia
   and Tsang, 2000): some bits choose a layer, the others are multiplied by its width, and 99 % of these products are
   returned as they are. That is done here; for the rest numpy's own function is called. Widths and limits of the layers
   are read off that function when the module is loaded.
*/

#include "../_arrays.h"

#include <stdint.h>
#include <string.h>

#include <numpy/random/distributions.h>

/* So many blocks are made at a time: their multiplications do not wait for one another. */
#define BLOCKS 4
#define NUMBERS (4 * BLOCKS)
#define ROUNDS 10
#define LAYERS 256
/* Numbers of a keystream that are made at a time: at most, and at first where it is not known how many are wanted. */
#define MOST 2048
#define FIRST 32

enum { EXPONENTIAL, UNIFORM, NORMAL, KINDS };

/* Numbers that were made and not taken yet; `make` makes more. */
typedef struct Stream Stream;
struct Stream {
    const uint64_t *next, *end;
    void (*make)(Stream *);
};

typedef struct {
    Stream s;
    uint64_t key[2], index, tag;
    uint64_t made; /* blocks so far */
    uint64_t numbers[NUMBERS];
} Philox;

static inline void multiply(uint64_t a, uint64_t b, uint64_t *high, uint64_t *low) {
    unsigned __int128 product = (unsigned __int128)a * b;
    *high = (uint64_t)(product >> 64);
    *low = (uint64_t)product;
}

static void make_philox(Stream *stream) {
    Philox *s = (Philox *)stream;
    uint64_t key0[ROUNDS] = {s->key[0]}, key1[ROUNDS] = {s->key[1]};
    for (int round = 1; round < ROUNDS; round++) {
        key0[round] = key0[round - 1] + 0x9E3779B97F4A7C15u;
        key1[round] = key1[round - 1] + 0xBB67AE8584CAA73Bu;
    }
    for (int k = 0; k < BLOCKS; k++) {
        uint64_t a = ++s->made, b = 0, c = s->index, d = s->tag;
        for (int round = 0; round < ROUNDS; round++) {
            uint64_t high0, low0, high1, low1;
            multiply(0xD2E7470EE14C6C93u, a, &high0, &low0);
            multiply(0xCA5A826395121157u, c, &high1, &low1);
            a = high1 ^ b ^ key0[round];
            b = low1;
            c = high0 ^ d ^ key1[round];
            d = low0;
        }
        uint64_t *numbers = s->numbers + 4 * k;
        numbers[0] = a;
        numbers[1] = b;
        numbers[2] = c;
        numbers[3] = d;
    }
    s->s.next = s->numbers;
    s->s.end = s->numbers + NUMBERS;
}

/* So many counters, from this block of this index on. */
typedef struct {
    uint64_t index, block;
    Py_ssize_t n;
} Counters;

typedef struct {
    Stream s;
    bitgen_t bits;
    PyObject *cipher; /* AES-256 of single blocks */
    uint64_t index;
    uint64_t made; /* blocks so far */
    Py_ssize_t step; /* numbers to be made next, even */
    int growth; /* of that */
    bool failed; /* and a Python exception says why */
    Counters written;
    PyObject *from, *to; /* views of `counters` and of `numbers`, as long as was last asked for */
    Py_ssize_t viewed;
    unsigned char counters[8 * MOST];
    uint64_t numbers[MOST + 2]; /* the cipher wants room for one block more */
} Keystream;

static PyObject *update_into;
static void make_keystream(Stream *s);

static void put_big_endian(unsigned char *at, uint64_t number) {
    for (int k = 0; k < 8; k++) at[k] = (unsigned char)(number >> (56 - 8 * k));
}

/* Read the numbers of some bytes where they are, the first byte the lowest. */
static void read_little_endian(uint64_t *numbers, Py_ssize_t n) {
#if defined(__BYTE_ORDER__) && __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
    /* They are read already. */
    (void)numbers, (void)n;
#else
    for (Py_ssize_t i = 0; i < n; i++) {
        const unsigned char *at = (const unsigned char *)(numbers + i);
        uint64_t number = 0;
        for (int k = 0; k < 8; k++) number |= (uint64_t)at[k] << 8 * k;
        numbers[i] = number;
    }
#endif
}

/* Of the rows of one call most begin at the same counter, under other keys. */
static void write_counters(Keystream *k) {
    Counters now = {k->index, k->made, k->step / 2};
    if (k->written.index == now.index && k->written.block == now.block && k->written.n == now.n) return;
    for (Py_ssize_t i = 0; i < now.n; i++) {
        put_big_endian(k->counters + 16 * i, now.index);
        put_big_endian(k->counters + 16 * i + 8, now.block + (uint64_t)i);
    }
    k->written = now;
}

static void drop_views(Keystream *k) {
    Py_CLEAR(k->from);
    Py_CLEAR(k->to);
    k->viewed = 0;
}

static Keystream *new_keystream(Py_ssize_t step, int growth) {
    Keystream *k = PyMem_Calloc(1, sizeof *k);
    if (!k) return (Keystream *)PyErr_NoMemory();
    k->s.make = make_keystream;
    k->step = step;
    k->growth = growth;
    return k;
}

/* Encrypt the next counters; whether it was done, else with a Python exception. */
static bool encrypt(Keystream *k) {
    write_counters(k);
    if (k->viewed != k->step) {
        drop_views(k);
        k->from = PyMemoryView_FromMemory((char *)k->counters, 8 * k->step, PyBUF_READ);
        k->to = PyMemoryView_FromMemory((char *)k->numbers, 8 * k->step + 16, PyBUF_WRITE);
        if (!k->from || !k->to) return false;
        k->viewed = k->step;
    }
    PyObject *written = PyObject_CallMethodObjArgs(k->cipher, update_into, k->from, k->to, NULL);
    if (!written) return false;
    bool done = PyLong_AsSsize_t(written) == 8 * k->step;
    Py_DECREF(written);
    if (!done && !PyErr_Occurred()) PyErr_SetString(PyExc_RuntimeError, "the cipher wrote another number of bytes");
    return done;
}

/* A call may fail: where a signal comes in between, or no memory is left. What is drawn then is nobody's: the exception
   stays set, and ends whoever asked for it. Until there, numbers that differ end every rejection. */
static void make_keystream(Stream *s) {
    Keystream *k = (Keystream *)s;
    PyGILState_STATE held = PyGILState_Ensure();
    k->failed = k->failed || !encrypt(k);
    PyGILState_Release(held);
    if (!k->failed) read_little_endian(k->numbers, k->step);
    else
        for (Py_ssize_t i = 0; i < k->step; i++) k->numbers[i] = (uint64_t)(i + 1) * 0x9E3779B97F4A7C15u;
    k->made += (uint64_t)(k->step / 2);
    k->s.next = k->numbers;
    k->s.end = k->numbers + k->step;
    k->step = k->step * k->growth < MOST ? k->step * k->growth : MOST;
}

/* Go to a block of the draw with this index. */
static void position(Keystream *k, PyObject *cipher, uint64_t index, uint64_t block) {
    k->s.next = k->s.end = NULL;
    k->cipher = cipher;
    k->index = index;
    k->made = block;
    k->failed = false;
}

static inline uint64_t next_number(Stream *s) {
    if (s->next == s->end) s->make(s);
    return *s->next++;
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
        if (s->next == s->end) s->make(s);
        const uint64_t *numbers = s->next;
        Py_ssize_t most = s->end - s->next < n ? s->end - s->next : n;
        Py_ssize_t made = kind == UNIFORM       ? uniforms(numbers, most, out)
                          : kind == EXPONENTIAL ? exponentials(numbers, most, out)
                                                : normals(numbers, most, out);
        s->next += made;
        if (made < most) out[made++] = kind == NORMAL ? random_standard_normal(&bits) : random_standard_exponential(&bits);
        out += made;
        n -= made;
    }
}

/* How many numbers follow one another in memory for each index of the first axis; -1 where they do not. */
static Py_ssize_t row_length(PyArrayObject *a) {
    Py_ssize_t n = 1;
    for (int axis = PyArray_NDIM(a) - 1; axis > 0; n *= PyArray_DIM(a, axis--))
        if (PyArray_DIM(a, axis) > 1 && PyArray_STRIDE(a, axis) != 8 * n && PyArray_SIZE(a)) return -1;
    return n;
}

/* Arrays of a call: of each row, what its stream has given so far; its key, where asked for; and what is to be filled,
   one array after the other. */
#define FILLED 16
typedef struct {
    PyArrayObject *used, *keys, *out[FILLED];
    Py_ssize_t length[FILLED];
    int kind[FILLED], n;
} Rows;

static bool refused(void) {
    PyErr_SetString(PyExc_ValueError, "wanted two numbers of each key, one of what is used, and kinds of at most 16 arrays "
                                      "of as many contiguous rows");
    return false;
}

/* filled: kinds and arrays in turn. keys: NULL where none are asked for. */
static bool get_rows(Rows *rows, PyObject *used, PyObject *keys, PyObject *const *filled, Py_ssize_t given) {
    PyArrayObject *of_keys = rows->keys = keys ? array_of(keys, NPY_UINT64, 2) : NULL;
    rows->used = array_of(used, NPY_UINT64, 2);
    if (!rows->used || PyArray_DIM(rows->used, 1) != 1 || given % 2 || given > 2 * FILLED)
        return refused();
    if (!writable(rows->used)) return false;
    Py_ssize_t b = PyArray_DIM(rows->used, 0);
    if (keys && (!of_keys || PyArray_DIM(of_keys, 0) != b || PyArray_DIM(of_keys, 1) != 2 || !rows_contiguous(of_keys)))
        return refused();
    rows->n = (int)(given / 2);
    for (int k = 0; k < rows->n; k++) {
        long kind = PyLong_AsLong(filled[2 * k]);
        if (PyErr_Occurred()) return false;
        if (kind < 0 || kind >= KINDS) return PyErr_Format(PyExc_ValueError, "no kind of variates has the number %ld", kind);
        rows->kind[k] = (int)kind;
        PyArrayObject *out = rows->out[k] = array_of(filled[2 * k + 1], NPY_DOUBLE, -1);
        if (!out || PyArray_NDIM(out) < 2 || PyArray_DIM(out, 0) != b || (rows->length[k] = row_length(out)) < 0)
            return refused();
        if (!writable(out)) return false;
    }
    return true;
}

static void fill_rows(Stream *s, const Rows *rows, Py_ssize_t r) {
    for (int k = 0; k < rows->n; k++) fill_row(s, rows->kind[k], row_of(rows->out[k], r), rows->length[k]);
}

PyDoc_STRVAR(fill_doc, "fill(keys, used, index, tag, *filled)\n--\n\n"
                       "Fill row after row with variates of the Philox stream of its key.\n\n"
                       "keys: (b, 2) uint64. used: (b, 1) uint64, numbers taken from each stream so far; advanced. "
                       "index, tag: of the counter. filled: a kind of variates, what it fills, (b, n) float64, and so on "
                       "for up to 16 arrays, each row of one after that of the other. Of more axes than two, all but "
                       "the first are contiguous.");

static PyObject *fill(PyObject *Py_UNUSED(module), PyObject *const *args, Py_ssize_t given) {
    Rows rows;
    if (given < 4) return PyErr_Format(PyExc_TypeError, "wanted keys, used, index and tag");
    uint64_t index = PyLong_AsUnsignedLongLongMask(args[2]), tag = PyLong_AsUnsignedLongLongMask(args[3]);
    if (PyErr_Occurred() || !get_rows(&rows, args[1], args[0], args + 4, given - 4)) return NULL;
    Py_BEGIN_ALLOW_THREADS
    for (Py_ssize_t r = 0; r < PyArray_DIM(rows.used, 0); r++) {
        const uint64_t *key = row_of(rows.keys, r);
        uint64_t *taken = row_of(rows.used, r);
        Philox p = {{NULL, NULL, make_philox}, {key[0], key[1]}, index, tag, *taken / 4, {0}};
        if (*taken % 4) {
            make_philox(&p.s);
            p.s.next += *taken % 4;
        }
        fill_rows(&p.s, &rows, r);
        *taken = 4 * p.made - (uint64_t)(p.s.end - p.s.next);
    }
    Py_END_ALLOW_THREADS
    return Py_NewRef(Py_None);
}

PyDoc_STRVAR(fill_secret_doc, "fill_secret(ciphers, used, index, *filled)\n--\n\n"
                              "Fill row after row with variates of the keystream of its cipher.\n\n"
                              "ciphers: list of b, AES-256 of single blocks. used, filled: as of `fill`. index: of "
                              "the draw. Raises what a cipher raises; what was filled until then is not to be used.");

static PyObject *fill_secret(PyObject *Py_UNUSED(module), PyObject *const *args, Py_ssize_t given) {
    Rows rows;
    if (given < 3 || !PyList_Check(args[0])) return PyErr_Format(PyExc_TypeError, "wanted a list of ciphers, used and index");
    uint64_t index = PyLong_AsUnsignedLongLong(args[2]);
    if (PyErr_Occurred() || !get_rows(&rows, args[1], NULL, args + 3, given - 3)) return NULL;
    Py_ssize_t b = PyArray_DIM(rows.used, 0), n = 0;
    if (PyList_Size(args[0]) != b) return PyErr_Format(PyExc_ValueError, "wanted a cipher for each row");
    for (int j = 0; j < rows.n; j++) n += rows.length[j];
    /* As many as a row takes, and some for its rejections: mostly one call for each row. */
    Keystream *k = new_keystream(n < MOST - n / 16 - 10 ? (n + n / 16 + 10) / 2 * 2 : MOST, 1);
    if (!k) return NULL;
    for (Py_ssize_t r = 0; r < b && !PyErr_Occurred(); r++) {
        uint64_t *taken = row_of(rows.used, r);
        position(k, PyList_GetItem(args[0], r), index, *taken / 2);
        if (*taken % 2) (void)next_number(&k->s);
        fill_rows(&k->s, &rows, r);
        *taken = 2 * k->made - (uint64_t)(k->s.end - k->s.next);
    }
    drop_views(k);
    PyMem_Free(k);
    return PyErr_Occurred() ? NULL : Py_NewRef(Py_None);
}

static const char *const CAPSULE = "BitGenerator";

static void free_bits(PyObject *capsule) {
    Keystream *k = PyCapsule_GetContext(capsule);
    drop_views(k);
    Py_XDECREF(k->cipher);
    PyMem_Free(k);
}

PyDoc_STRVAR(bits_doc, "bits()\n--\n\nThe capsule of a bit generator for numpy; `at` says what it gives.");

static PyObject *bits(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(none)) {
    Keystream *k = new_keystream(FIRST, 4);
    if (!k) return NULL;
    k->bits = (bitgen_t){k, stream_uint64, stream_uint32, stream_double, stream_uint64};
    PyObject *capsule = PyCapsule_New(&k->bits, CAPSULE, free_bits);
    if (!capsule || PyCapsule_SetContext(capsule, k) < 0) {
        PyMem_Free(k);
        return NULL;
    }
    return capsule;
}

PyDoc_STRVAR(at_doc, "at(bits, cipher, index)\n--\n\nPut a bit generator at the beginning of one draw of a keystream.");

static PyObject *at(PyObject *Py_UNUSED(module), PyObject *args) {
    PyObject *capsule, *cipher, *index_object;
    if (!PyArg_ParseTuple(args, "OOO!", &capsule, &cipher, &PyLong_Type, &index_object)) return NULL;
    uint64_t index = PyLong_AsUnsignedLongLong(index_object);
    if (PyErr_Occurred() || !PyCapsule_GetPointer(capsule, CAPSULE)) return NULL;
    Keystream *k = PyCapsule_GetContext(capsule);
    if (!k || k->s.make != make_keystream) {
        PyErr_SetString(PyExc_ValueError, "wanted a bit generator that `bits` has made");
        return NULL;
    }
    PyObject *before = k->cipher;
    position(k, Py_NewRef(cipher), index, 0);
    k->step = FIRST;
    Py_XDECREF(before);
    return Py_NewRef(Py_None);
}

static int prepare(PyObject *module) {
    if (use_arrays(module) < 0) return -1;
    read_off(EXPONENTIAL, &exponential);
    read_off(NORMAL, &normal);
    update_into = PyUnicode_InternFromString("update_into");
    return !update_into || PyModule_AddIntMacro(module, EXPONENTIAL) < 0 ||
                   PyModule_AddIntMacro(module, UNIFORM) < 0 || PyModule_AddIntMacro(module, NORMAL) < 0
               ? -1
               : 0;
}

static PyMethodDef methods[] = {FUNCTION(fill, fill_doc),
                                FUNCTION(fill_secret, fill_secret_doc),
                                {"bits", bits, METH_NOARGS, bits_doc},
                                {"at", at, METH_VARARGS, at_doc},
                                {NULL, NULL, 0, NULL}};
static PyModuleDef_Slot slots[] = {{Py_mod_exec, prepare}, {0, NULL}};
static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT, "_variates", "Variates of many keyed streams in one call.", 0, methods, slots, NULL, NULL, NULL};

PyMODINIT_FUNC PyInit__variates(void) { return PyModuleDef_Init(&definition); }
