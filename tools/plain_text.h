/* Text from outside, such as the names of files, on a terminal. */
#ifndef STRATA_TOOLS_PLAIN_TEXT_H
#define STRATA_TOOLS_PLAIN_TEXT_H

#include "core/base/escape.h"

typedef struct plain_text {
    char text[4400];
} plain_text;

/* The text with its control characters escaped; a longer one is cut. */
static inline plain_text plain(const char *text)
{
    plain_text escaped;
    strata_escape(escaped.text, sizeof escaped.text, text);
    return escaped;
}

#endif
