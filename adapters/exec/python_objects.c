/* Objects of CPython, read without its lock and without its functions.
 *
 * Each piece is copied by process_vm_readv, as a debugger reads it, which refuses memory that is not there, without a
 * fault. Objects are told by the addresses of their types, so that another layout (a debug build, one without the
 * interpreter's lock) gives no text, never a wrong one.
 *
 * Layouts: Include/cpython/pystate.h, code.h, unicodeobject.h, Include/internal/pycore_frame.h (3.10:
 * cpython/frameobject.h). They are constant within a minor version, whose extension modules are compiled against them.
 * Line tables: Objects/lnotab_notes.txt of 3.10, Objects/locations.md since 3.11. */
#define _GNU_SOURCE
#include "adapters/exec/python.h"

#include <string.h>
#include <sys/uio.h>
#include <unistd.h>

enum { OBJECT_TYPE = 8, TEXT_LENGTH = 16, TEXT_STATE = 32, TABLE_LENGTH = 16, TABLE_BYTES = 32 };

static const exec_python_layout layouts[] = {
    {.minor = 10,
     .state_frames = 24,
     .frame_bytes = 104,
     .frame_code = 32,
     .frame_previous = 24,
     .frame_instruction = 96,
     .counts_instructions = true,
     .code_line = 40,
     .code_table = 120,
     .code_file = 104,
     .code_name = 112,
     .text_bytes = 48,
     .wide_text_bytes = 72},
    {.minor = 11,
     .state_frames = 56,
     .behind_c_frame = true,
     .c_frame_frame = 8,
     .frame_bytes = 72,
     .frame_code = 32,
     .frame_previous = 48,
     .frame_instruction = 56,
     .code_line = 72,
     .code_table = 136,
     .code_file = 112,
     .code_name = 128,
     .code_begin = 184,
     .text_bytes = 48,
     .wide_text_bytes = 72},
    {.minor = 12,
     .state_frames = 56,
     .behind_c_frame = true,
     .c_frame_frame = 0,
     .frame_bytes = 72,
     .frame_code = 0,
     .frame_previous = 8,
     .frame_instruction = 56,
     .frame_owner = 70,
     .code_line = 68,
     .code_table = 136,
     .code_file = 112,
     .code_name = 128,
     .code_begin = 192,
     .text_bytes = 40,
     .wide_text_bytes = 56},
    {.minor = 13,
     .state_frames = 72,
     .frame_bytes = 72,
     .frame_code = 0,
     .frame_previous = 8,
     .frame_instruction = 56,
     .frame_owner = 70,
     .code_line = 68,
     .code_table = 136,
     .code_file = 112,
     .code_name = 128,
     .code_begin = 200,
     .text_bytes = 40,
     .wide_text_bytes = 56},
};

const exec_python_layout *exec_python_layout_of(unsigned major, unsigned minor)
{
    for (size_t i = 0; major == 3 && i < sizeof layouts / sizeof layouts[0]; i++)
        if (layouts[i].minor == minor)
            return &layouts[i];
    return NULL;
}

bool exec_python_copy(uintptr_t from, void *to, size_t bytes)
{
    const struct iovec local = {to, bytes}, remote = {(void *)from, bytes}; /* NOLINT: the interpreter's address */
    return process_vm_readv(getpid(), &local, 1, &remote, 1, 0) == (ssize_t)bytes;
}

bool exec_python_copy_many(const uintptr_t *from, size_t count, void *to, size_t bytes)
{
    enum { MOST = 32 };
    struct iovec remote[MOST];
    const struct iovec local = {to, count * bytes};
    for (size_t i = 0; i < count && i < MOST; i++)
        remote[i] = (struct iovec){(void *)from[i], bytes}; /* NOLINT: the interpreter's address */
    return count <= MOST && process_vm_readv(getpid(), &local, 1, remote, count, 0) == (ssize_t)(count * bytes);
}

/* ---- texts ---- */

static size_t put_utf8(char *to, uint32_t character)
{
    if (character < 0x80) {
        to[0] = (char)character;
        return 1;
    }
    const size_t more = character < 0x800 ? 1 : character < 0x10000 ? 2 : 3;
    static const unsigned char first[] = {0, 0xc0, 0xe0, 0xf0};
    for (size_t i = more; i; i--, character >>= 6)
        to[i] = (char)(0x80 | (character & 0x3f));
    to[0] = (char)(first[more] | character);
    return more + 1;
}

static uint32_t character_at(const unsigned char *bytes, size_t kind, size_t i)
{
    uint32_t wide;
    uint16_t half;
    if (kind == 1)
        return bytes[i];
    if (kind == 2) {
        memcpy(&half, bytes + 2 * i, sizeof half);
        return half;
    }
    memcpy(&wide, bytes + 4 * i, sizeof wide);
    return wide;
}

/* Reads the last characters as UTF-8: as many as fit if each takes most_bytes. Returns the bytes used; 0: no text. */
static size_t read_characters(uintptr_t from, size_t length, size_t kind, size_t most_bytes, char *to, size_t room)
{
    unsigned char bytes[EXEC_PYTHON_TEXT];
    const size_t fits = (room < sizeof bytes ? room : sizeof bytes) / most_bytes, count = length < fits ? length : fits;
    size_t used = 0;
    if (!exec_python_copy(from + (length - count) * kind, bytes, count * kind))
        return 0;
    for (size_t i = 0; i < count; i++) {
        const uint32_t character = character_at(bytes, kind, i);
        if (character < ' ' || character > 0x10ffff)
            return 0;
        used += put_utf8(to + used, character);
    }
    return used;
}

size_t exec_python_read_text(const exec_python *python, uintptr_t object, char *to, size_t room)
{
    unsigned char header[40];
    uintptr_t type;
    int64_t length;
    uint32_t state;
    if (!exec_python_copy(object, header, sizeof header))
        return 0;
    memcpy(&type, header + OBJECT_TYPE, sizeof type);
    memcpy(&length, header + TEXT_LENGTH, sizeof length);
    memcpy(&state, header + TEXT_STATE, sizeof state);
    const bool compact = state >> 5 & 1, ascii = state >> 6 & 1;
    const size_t kind = state >> 2 & 7;
    if (type != python->text_type || length <= 0 || !compact || (kind != 1 && kind != 2 && kind != 4))
        return 0;
    const size_t begin = ascii ? python->layout->text_bytes : python->layout->wide_text_bytes;
    return read_characters(object + begin, (size_t)length, kind, ascii ? 1 : 4, to, room);
}

/* ---- lines ---- */

typedef struct byte_reader {
    uintptr_t next;
    size_t left; /* behind the buffer */
    size_t used, filled;
    unsigned char bytes[192];
} byte_reader;

static bool begin_table(byte_reader *from, uintptr_t table)
{
    int64_t length;
    if (!exec_python_copy(table + TABLE_LENGTH, &length, sizeof length) || length <= 0)
        return false;
    from->next = table + TABLE_BYTES;
    from->left = (size_t)length;
    from->used = from->filled = 0;
    return true;
}

/* Returns the next byte, which stays the next one. -1: the end. */
static int peek(byte_reader *from)
{
    if (from->used == from->filled) {
        const size_t count = from->left < sizeof from->bytes ? from->left : sizeof from->bytes;
        if (!count || !exec_python_copy(from->next, from->bytes, count))
            return -1;
        from->next += count;
        from->left -= count;
        from->used = 0;
        from->filled = count;
    }
    return from->bytes[from->used];
}

static int take(byte_reader *from)
{
    const int byte = peek(from);
    from->used += byte >= 0;
    return byte;
}

/* A signed number: six bits in each byte, the least significant ones first; the lowest bit is the sign. */
static int take_signed(byte_reader *from)
{
    unsigned value = 0, shift = 0;
    int byte;
    do {
        byte = take(from);
        if (byte < 0)
            return 0;
        value |= (unsigned)(byte & 63) << shift;
        shift += 6;
    } while (byte & 64 && shift < 32);
    return value & 1 ? -(int)(value >> 1) : (int)(value >> 1);
}

/* An entry of the table begins with a byte above 127, which has its kind and how many instructions of two bytes it is
 * for. */
static int line_since_3_11(byte_reader *from, int line, size_t at)
{
    enum { NO_LINE = 15, WITH_DELTA = 13, ONE_LINE = 10 };
    size_t end = 0;
    for (int first; (first = take(from)) >= 0;) {
        const int kind = first >> 3 & 15;
        if (kind == WITH_DELTA || kind == WITH_DELTA + 1)
            line += take_signed(from);
        else if (kind >= ONE_LINE && kind < WITH_DELTA)
            line += kind - ONE_LINE;
        end += 2 * (size_t)((first & 7) + 1);
        if (at < end)
            return kind == NO_LINE ? 0 : line;
        while (peek(from) >= 0 && peek(from) < 128)
            take(from);
    }
    return 0;
}

/* An entry is a pair of bytes: how many bytes of instructions it is for, and by how many lines it goes on, signed;
 * -128: it has no line. */
static int line_of_pep_626(byte_reader *from, int line, size_t at)
{
    size_t end = 0;
    for (int bytes, delta; (bytes = take(from)) >= 0 && (delta = take(from)) >= 0;) {
        const bool has_line = delta != 128;
        if (has_line)
            line += delta > 127 ? delta - 256 : delta;
        end += (size_t)bytes;
        if (at < end)
            return has_line ? line : 0;
    }
    return 0;
}

int exec_python_line(const exec_python_layout *layout, uintptr_t table, int first_line, size_t at)
{
    byte_reader reader;
    if (!begin_table(&reader, table))
        return 0;
    return layout->counts_instructions ? line_of_pep_626(&reader, first_line, at)
                                       : line_since_3_11(&reader, first_line, at);
}
