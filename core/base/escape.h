/* Text from outside in messages: control characters are shown, not obeyed by a terminal. */
#ifndef STRATA_CORE_BASE_ESCAPE_H
#define STRATA_CORE_BASE_ESCAPE_H

#include <stddef.h>

/* U+FFFD, for a byte that is no part of a UTF-8 character. */
#define STRATA_UTF8_REPLACEMENT "\xef\xbf\xbd"

/* Bytes of the UTF-8 character (RFC 3629) at `text`; 0: none. */
size_t strata_utf8_length(const char *text);

/* Copies at most `size` bytes, control characters as \n, \t or \x1b, bytes that are no UTF-8 as U+FFFD. Truncates
 * between characters. */
void strata_escape(char *to, size_t size, const char *from);

/* Keeps control characters. */
void strata_make_utf8(char *to, size_t size, const char *from);

/* How many bytes of `text` to keep where `most` fit, without cutting a UTF-8 character in two. */
size_t strata_text_cut(const char *text, size_t most);

#endif
