/* Showing control characters. Bytes above 127 pass: they are parts of letters. */
#include "core/escape.h"

#include <stdio.h>
#include <string.h>

static size_t escape_one(char out[5], char c)
{
    if (c == '\n' || c == '\t' || c == '\r')
        return (size_t)snprintf(out, 5, "\\%c", c == '\n' ? 'n' : c == '\t' ? 't' : 'r');
    if ((unsigned char)c < 0x20 || c == 0x7f)
        return (size_t)snprintf(out, 5, "\\x%02x", (unsigned)(unsigned char)c);
    out[0] = c;
    return 1;
}

void strata_escape(char *to, size_t size, const char *from)
{
    size_t used = 0;
    for (; *from; from++) {
        char shown[5];
        size_t length = escape_one(shown, *from);
        if (used + length >= size)
            break;
        memcpy(to + used, shown, length);
        used += length;
    }
    to[used] = '\0';
}

size_t strata_text_cut(const char *text, size_t most)
{
    size_t length = strnlen(text, most + 1), begin = most;
    if (length <= most)
        return length;
    while (begin && most - begin < 3 && ((unsigned char)text[begin] & 0xc0) == 0x80)
        begin--; /* to where the character begins of which this is a part */
    unsigned first = (unsigned char)text[begin];
    size_t whole = first >= 0xf0 ? 4 : first >= 0xe0 ? 3 : first >= 0xc0 ? 2 : 1;
    return begin + whole > most ? begin : most;
}
