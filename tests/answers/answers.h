/* A set of answers, in the order of their questions, and the comparison of two sets. */
#ifndef STRATA_TESTS_ANSWERS_ANSWERS_H
#define STRATA_TESTS_ANSWERS_ANSWERS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

struct answer {
    char *question;
    char *text;
};

struct answers {
    struct answer *items;
    size_t count;
    size_t capacity;
};

/* Adds the line "question = text". False: it is not such a line, or the question is there already. */
bool answers_add(struct answers *answers, const char *line);

const struct answer *answers_find(const struct answers *answers, const char *question);

/* Reads lines of "question = text", without empty lines and lines that begin with #. False: stderr has the reason. */
bool answers_read(struct answers *answers, const char *path);

/* Reports to `out` each question whose answers differ or that only one side has, unless `excused` has it, and each
 * excuse that is not needed. Returns the number of reports. */
size_t answers_compare(const struct answers *expected, const struct answers *given, const struct answers *excused,
                       FILE *out);

void answers_free(struct answers *answers);

#endif
