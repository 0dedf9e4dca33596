/* Text from outside in messages: what a terminal would obey is shown instead. */
#ifndef STRATA_CORE_ESCAPE_H
#define STRATA_CORE_ESCAPE_H

#include <stddef.h>

/* Copies `from` to `to`, which has room for `size` bytes, with control characters as \n, \t or \x1b. What does not fit
 * is left out, whole characters of this form at a time. */
void strata_escape(char *to, size_t size, const char *from);

/* How many bytes of a text to keep where there is room for `most`: all of a shorter one, and else so many that no UTF-8
 * character is cut through. What is no UTF-8 is cut anywhere. */
size_t strata_text_cut(const char *text, size_t most);

#endif
