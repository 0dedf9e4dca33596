/* Text from outside in messages: what a terminal would obey is shown instead. */
#ifndef STRATA_CORE_BASE_ESCAPE_H
#define STRATA_CORE_BASE_ESCAPE_H

#include <stddef.h>

/* What stands for a byte that is no part of a UTF-8 character: U+FFFD. */
#define STRATA_UTF8_REPLACEMENT "\xef\xbf\xbd"

/* How many bytes at `text` are one UTF-8 character as RFC 3629 has it; 0 if they are none. */
size_t strata_utf8_length(const char *text);

/* Copies `from` to `to`, which has room for `size` bytes, with control characters as \n, \t or \x1b, and U+FFFD for
 * each byte that is no UTF-8. What does not fit is left out, whole characters of this form at a time. */
void strata_escape(char *to, size_t size, const char *from);

/* The same, with control characters as they are. */
void strata_make_utf8(char *to, size_t size, const char *from);

/* How many bytes of a text to keep where there is room for `most`: all of a shorter one, and else so many that no UTF-8
 * character is cut through. What is no UTF-8 is cut anywhere. */
size_t strata_text_cut(const char *text, size_t most);

#endif
