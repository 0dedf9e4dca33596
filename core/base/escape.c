/* Showing control characters and bytes outside UTF-8. */
#include "core/base/escape.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

enum { SHOWN = 8 }; /* bytes of a character as it is shown, with the final zero */

size_t strata_utf8_length(const char *text)
{
    const unsigned char *at = (const unsigned char *)text;
    if (at[0] < 0x80)
        return 1;
    size_t length = at[0] >= 0xf0 ? 4 : at[0] >= 0xe0 ? 3 : 2;
    if (at[0] < 0xc2 || at[0] > 0xf4)
        return 0;
    for (size_t i = 1; i < length; i++)
        if ((at[i] & 0xc0) != 0x80)
            return 0;
    bool overlong = (at[0] == 0xe0 && at[1] < 0xa0) || (at[0] == 0xf0 && at[1] < 0x90);
    bool surrogate = at[0] == 0xed && at[1] > 0x9f;
    bool beyond = at[0] == 0xf4 && at[1] > 0x8f;
    return overlong || surrogate || beyond ? 0 : length;
}

size_t strata_control_length(const char *text)
{
    const unsigned char *at = (const unsigned char *)text;
    if (at[0] == 0xc2 && at[1] >= 0x80 && at[1] < 0xa0)
        return 2;
    return at[0] && (at[0] < 0x20 || at[0] == 0x7f);
}

unsigned strata_control_code(const char *text)
{
    return (unsigned char)text[strata_control_length(text) == 2];
}

/* The code of a character of two or three bytes that changes the direction of the text after it (Unicode's UAX 9), by
 * which a name can be shown as another; 0: none. */
static unsigned direction_code(const char *text)
{
    const unsigned char *at = (const unsigned char *)text;
    if (at[0] == 0xd8 && at[1] == 0x9c)
        return 0x61c;
    if (at[0] != 0xe2 || (at[1] != 0x80 && at[1] != 0x81))
        return 0;
    const unsigned code = 0x2000 | (at[1] & 0x3fu) << 6 | (at[2] & 0x3fu);
    const bool is_mark = code == 0x200e || code == 0x200f;
    const bool is_embedding = code >= 0x202a && code <= 0x202e, is_isolate = code >= 0x2066 && code <= 0x2069;
    return is_mark || is_embedding || is_isolate ? code : 0;
}

/* Shows one character; *taken is its length in `from`. */
static size_t show_one(char out[SHOWN], const char *from, bool controls, size_t *taken)
{
    const char c = *from;
    *taken = strata_utf8_length(from);
    if (!*taken) {
        *taken = 1;
        return (size_t)snprintf(out, SHOWN, "%s", STRATA_UTF8_REPLACEMENT);
    }
    if (controls && (c == '\n' || c == '\t' || c == '\r'))
        return (size_t)snprintf(out, SHOWN, "\\%c", c == '\n' ? 'n' : c == '\t' ? 't' : 'r');
    if (controls && strata_control_length(from))
        return (size_t)snprintf(out, SHOWN, "\\x%02x", strata_control_code(from));
    if (controls && direction_code(from))
        return (size_t)snprintf(out, SHOWN, "\\u%04x", direction_code(from));
    memcpy(out, from, *taken);
    return *taken;
}

/* The number of bytes at the beginning, up to `most`, that are shown as they are: printable ASCII. */
static size_t plain_length(const char *text, size_t most)
{
    size_t length = 0;
    while (length < most && text[length] >= 0x20 && text[length] < 0x7f)
        length++;
    return length;
}

static void show(char *to, size_t size, const char *from, bool controls)
{
    size_t used = 0, taken;
    for (; *from; from += taken) {
        taken = plain_length(from, size - used - 1);
        if (taken) {
            memcpy(to + used, from, taken);
            used += taken;
            continue;
        }
        char shown[SHOWN];
        size_t length = show_one(shown, from, controls, &taken);
        if (used + length >= size)
            break;
        memcpy(to + used, shown, length);
        used += length;
    }
    to[used] = '\0';
}

void strata_escape(char *to, size_t size, const char *from)
{
    show(to, size, from, true);
}

void strata_make_utf8(char *to, size_t size, const char *from)
{
    show(to, size, from, false);
}

size_t strata_text_cut(const char *text, size_t most)
{
    size_t length = strnlen(text, most + 1), begin = most;
    if (length <= most)
        return length;
    while (begin && most - begin < 3 && ((unsigned char)text[begin] & 0xc0) == 0x80)
        begin--; /* back to the first byte of the character */
    unsigned first = (unsigned char)text[begin];
    size_t whole = first >= 0xf0 ? 4 : first >= 0xe0 ? 3 : first >= 0xc0 ? 2 : 1;
    return begin + whole > most ? begin : most;
}
