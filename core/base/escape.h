/* Text from outside in messages: a terminal shows its control characters and does not obey them. */
#ifndef STRATA_CORE_BASE_ESCAPE_H
#define STRATA_CORE_BASE_ESCAPE_H

#include <stddef.h>

/* U+FFFD, for a byte outside UTF-8. */
#define STRATA_UTF8_REPLACEMENT "\xef\xbf\xbd"

/* Bytes of the UTF-8 character (RFC 3629) at `text`; 0: none. */
size_t strata_utf8_length(const char *text);

/* Bytes of the control character at `text`, which may be one of C1 (U+0080 to U+009F), such as the CSI that terminals
 * obey; 0: none. */
size_t strata_control_length(const char *text);

/* The code of the control character at `text`, at most 0x9f. */
unsigned strata_control_code(const char *text);

/* Writes at most `size` bytes: control characters as \n, \t or \x1b, those that change the direction of text as \u202e,
 * bytes outside UTF-8 as U+FFFD. Truncates between characters. */
void strata_escape(char *to, size_t size, const char *from);

/* As strata_escape, but keeps control characters. */
void strata_make_utf8(char *to, size_t size, const char *from);

/* How many bytes of `text` to keep if `most` fit, without cutting a UTF-8 character. */
size_t strata_text_cut(const char *text, size_t most);

#endif
