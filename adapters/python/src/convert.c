/* Arguments: streams as other libraries name them, sizes as texts, element types. */
#include "module.h"

#include <string.h>

const char *convert_words(PyObject *text, PyObject **bytes)
{
    char *words = NULL;
    *bytes = text ? PyUnicode_AsUTF8String(text) : NULL;
    return *bytes && PyBytes_AsStringAndSize(*bytes, &words, NULL) == 0 ? words : NULL;
}

PyObject *convert_text(const char *text)
{
    return PyUnicode_DecodeUTF8(text, (Py_ssize_t)strlen(text), "replace");
}

/* ---- streams ---- */

static bool handle_of_number(PyObject *number, CUstream *out)
{
    PyObject *index = PyNumber_Index(number);
    const unsigned long long value = index ? PyLong_AsUnsignedLongLong(index) : 0;
    Py_XDECREF(index);
    if (PyErr_Occurred())
        return false;
    *out = (CUstream)(uintptr_t)value;
    return true;
}

/* The protocol of cuda.core: __cuda_stream__() gives (version, handle). Early versions had it as an attribute. */
static bool handle_of_protocol(PyObject *protocol, CUstream *out)
{
    PyObject *pair = PyCallable_Check(protocol) ? PyObject_CallObject(protocol, NULL) : Py_NewRef(protocol);
    PyObject *number = pair && PySequence_Check(pair) && PySequence_Size(pair) > 1 ? PySequence_GetItem(pair, 1) : NULL;
    if (pair && !number && !PyErr_Occurred())
        PyErr_Format(PyExc_TypeError, "stream: __cuda_stream__ gives a version and a handle, not %R", pair);
    Py_XDECREF(pair);
    const bool done = number && handle_of_number(number, out);
    Py_XDECREF(number);
    return done;
}

/* An attribute that the object may have. NULL: it has none, or, with an exception, it does not give it. */
static PyObject *find_member(PyObject *object, const char *name)
{
    PyObject *found = PyObject_GetAttrString(object, name);
    if (!found && PyErr_ExceptionMatches(PyExc_AttributeError))
        PyErr_Clear();
    return found;
}

/* A number, or an object with one: ctypes has it in `value`, of None for a null pointer; bindings convert by int(). */
static bool handle_of_member(PyObject *member, CUstream *out)
{
    if (PyIndex_Check(member))
        return handle_of_number(member, out);
    PyObject *number = find_member(member, "value");
    if (number == Py_None) {
        Py_DECREF(number);
        number = PyLong_FromLong(0);
    } else if (!number && !PyErr_Occurred()) {
        number = PyNumber_Long(member);
    }
    const bool done = number && handle_of_number(number, out);
    Py_XDECREF(number);
    return done;
}

/* Memory has a `ptr` or a `handle`, too, which is its address: the driver may crash on it. */
static bool is_memory(PyObject *object)
{
    return PyObject_TypeCheck(object, module_memory_type) || PyObject_HasAttrString(object, "__dlpack__");
}

/* In this order: cuda.core; CuPy, PyTorch; Numba and bindings. */
static const struct {
    const char *name;
    bool (*handle_of)(PyObject *member, CUstream *out);
} stream_members[] = {
    {"__cuda_stream__", handle_of_protocol},
    {"ptr", handle_of_member},
    {"cuda_stream", handle_of_member},
    {"handle", handle_of_member},
};

bool convert_stream(PyObject *object, CUstream *out)
{
    *out = NULL;
    if (!object || object == Py_None)
        return true;
    if (PyIndex_Check(object))
        return handle_of_number(object, out);
    for (size_t i = 0; i < sizeof stream_members / sizeof stream_members[0]; i++) {
        if (i == 1 && is_memory(object))
            break;
        PyObject *found = find_member(object, stream_members[i].name);
        const bool done = found && stream_members[i].handle_of(found, out);
        if (found || PyErr_Occurred()) {
            Py_XDECREF(found);
            return done;
        }
    }
    PyErr_Format(PyExc_TypeError,
                 "stream: expected None, a handle, or an object with __cuda_stream__, ptr, "
                 "cuda_stream or handle, not %R",
                 (PyObject *)Py_TYPE(object));
    return false;
}

unsigned long long convert_stream_number(CUstream stream)
{
    return stream ? (unsigned long long)(uintptr_t)stream : 1;
}

/* ---- sizes ---- */

static bool size_of_number(PyObject *number, const char *name, unsigned long long *out)
{
    if (!PyIndex_Check(number)) {
        PyErr_Format(PyExc_TypeError, "%s: expected a number of bytes, or a text such as \"8GiB\", not %R", name,
                     (PyObject *)Py_TYPE(number));
        return false;
    }
    PyObject *index = PyNumber_Index(number);
    *out = index ? PyLong_AsUnsignedLongLong(index) : 0;
    Py_XDECREF(index);
    if (!PyErr_Occurred())
        return true;
    if (PyErr_ExceptionMatches(PyExc_OverflowError)) {
        PyErr_Clear();
        PyErr_Format(PyExc_ValueError, "%s: a size is from 0 to 2^64 - 1 bytes, not %R", name, number);
    }
    return false;
}

static bool size_of_text(PyObject *text, const char *name, unsigned long long *out)
{
    PyObject *bytes;
    const char *words = convert_words(text, &bytes);
    uint64_t value = 0;
    const strata_status status = words ? strata_parse_size(words, &value) : STRATA_SUCCESS;
    Py_XDECREF(bytes);
    if (status != STRATA_SUCCESS)
        errors_raise_argument(name, status);
    *out = value;
    return words && status == STRATA_SUCCESS;
}

bool convert_size(PyObject *object, const char *name, size_t *out)
{
    unsigned long long value;
    const bool done =
        PyUnicode_Check(object) ? size_of_text(object, name, &value) : size_of_number(object, name, &value);
    *out = done ? (size_t)value : 0;
    return done;
}

/* "50%": a share of the device's memory. */
static bool share_of_text(PyObject *text, const char *name, double *out)
{
    PyObject *stripped = PyObject_CallMethod(text, "rstrip", "s", "% ");
    PyObject *number = stripped ? PyFloat_FromString(stripped) : NULL;
    Py_XDECREF(stripped);
    *out = number ? PyFloat_AsDouble(number) : 0;
    Py_XDECREF(number);
    if (PyErr_Occurred() && !PyErr_ExceptionMatches(PyExc_ValueError))
        return false;
    if (!PyErr_Occurred() && *out > 0 && *out <= 100)
        return true;
    PyErr_Clear();
    PyErr_Format(
        PyExc_ValueError,
        "%s: a share of the device's memory is a number above 0 and at most 100 with a %%, such as \"80%%\", not %R",
        name, text);
    return false;
}

static bool is_share(PyObject *object)
{
    PyObject *sign = PyUnicode_Check(object) ? PyUnicode_FromString("%") : NULL;
    const bool found = sign && PyUnicode_Tailmatch(object, sign, 0, PY_SSIZE_T_MAX, 1) == 1;
    Py_XDECREF(sign);
    return found;
}

bool convert_limit(PyObject *object, const char *name, strata_amount *out)
{
    *out = (strata_amount){0};
    if (!object || object == Py_None)
        return true;
    if (is_share(object))
        return share_of_text(object, name, &out->percent);
    size_t bytes;
    if (!convert_size(object, name, &bytes))
        return false;
    if (!bytes)
        PyErr_Format(PyExc_ValueError, "%s: a limit is more than 0 bytes; None: no limit", name);
    out->bytes = bytes;
    return bytes != 0;
}

/* ---- element types ---- */

static const element_name element_names[] = {
    {"", NULL},
    [STRATA_ELEMENT_F16] = {"float16", "<f2"},
    [STRATA_ELEMENT_BF16] = {"bfloat16", NULL},
    [STRATA_ELEMENT_F32] = {"float32", "<f4"},
    [STRATA_ELEMENT_F64] = {"float64", "<f8"},
    [STRATA_ELEMENT_F8E4M3] = {"float8_e4m3fn", NULL},
    [STRATA_ELEMENT_F8E5M2] = {"float8_e5m2", NULL},
    [STRATA_ELEMENT_I8] = {"int8", "|i1"},
    [STRATA_ELEMENT_I16] = {"int16", "<i2"},
    [STRATA_ELEMENT_I32] = {"int32", "<i4"},
    [STRATA_ELEMENT_I64] = {"int64", "<i8"},
    [STRATA_ELEMENT_U8] = {"uint8", "|u1"},
    [STRATA_ELEMENT_U16] = {"uint16", "<u2"},
    [STRATA_ELEMENT_U32] = {"uint32", "<u4"},
    [STRATA_ELEMENT_U64] = {"uint64", "<u8"},
    [STRATA_ELEMENT_C64] = {"complex64", "<c8"},
    [STRATA_ELEMENT_C128] = {"complex128", "<c16"},
};

const element_name *convert_element_name(strata_element type)
{
    return &element_names[type];
}

/* NumPy's dtype as "float32", its scalar class as __name__, PyTorch's dtype as "torch.float32". */
static PyObject *element_text(PyObject *object)
{
    if (PyUnicode_Check(object))
        return Py_NewRef(object);
    return PyType_Check(object) ? PyObject_GetAttrString(object, "__name__") : PyObject_Str(object);
}

static strata_element find_element(const char *text)
{
    const char *dot = strrchr(text, '.');
    const char *word = dot ? dot + 1 : text;
    for (size_t i = 1; i < sizeof element_names / sizeof element_names[0]; i++) {
        const element_name *element = &element_names[i];
        if (strcmp(word, element->numpy) == 0 ||
            (element->typestr && (strcmp(word, element->typestr) == 0 || strcmp(word, element->typestr + 1) == 0)))
            return (strata_element)i;
    }
    return STRATA_ELEMENT_NONE;
}

bool convert_element(PyObject *object, strata_element *out)
{
    PyObject *text = element_text(object);
    PyObject *bytes;
    const char *word = convert_words(text, &bytes);
    Py_XDECREF(text);
    *out = word ? find_element(word) : STRATA_ELEMENT_NONE;
    Py_XDECREF(bytes);
    if (word && *out == STRATA_ELEMENT_NONE)
        PyErr_Format(PyExc_TypeError,
                     "dtype: %R is none of float16 to float64, bfloat16, float8_e4m3fn, float8_e5m2, "
                     "int8 to int64, uint8 to uint64, complex64, complex128",
                     object);
    return *out != STRATA_ELEMENT_NONE;
}

/* ---- words ---- */

bool convert_tag(PyObject *object, strata_tag *out)
{
    *out = strata_tag_current();
    if (!object || object == Py_None)
        return true;
    PyObject *bytes;
    if (!PyUnicode_Check(object)) {
        PyErr_Format(PyExc_TypeError, "tag: expected a text, not %R", (PyObject *)Py_TYPE(object));
        return false;
    }
    const char *name = convert_words(object, &bytes);
    const strata_status status = name ? strata_tag_intern(name, out) : STRATA_SUCCESS;
    Py_XDECREF(bytes);
    if (status != STRATA_SUCCESS)
        errors_raise(status);
    return name && status == STRATA_SUCCESS;
}

bool convert_access(const char *text, strata_access *out)
{
    *out = strcmp(text, "r") == 0    ? STRATA_ACCESS_READ
           : strcmp(text, "w") == 0  ? STRATA_ACCESS_WRITE
           : strcmp(text, "rw") == 0 ? STRATA_ACCESS_READ_WRITE
                                     : STRATA_ACCESS_NONE;
    if (*out == STRATA_ACCESS_NONE)
        PyErr_Format(PyExc_ValueError, "access: expected \"r\", \"w\" or \"rw\", not \"%s\"", text);
    return *out != STRATA_ACCESS_NONE;
}
