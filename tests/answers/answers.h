/* A set of answers, question by question in the order they were asked, and what can be done with two of them. */
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

/* Adds the line "question = text". false: it is not such a line, or the question is there already. */
bool answers_add(struct answers *answers, const char *line);

const struct answer *answers_find(const struct answers *answers, const char *question);

/* Reads lines of "question = text"; empty lines and those that begin with # are skipped. false: stderr says why. */
bool answers_read(struct answers *answers, const char *path);

/* Reports to out every question whose answers differ or that only one side asked, unless excused has it, and every
 * excuse that is not needed. Returns how many reports were made. */
size_t answers_compare(const struct answers *expected, const struct answers *given, const struct answers *excused,
                       FILE *out);

void answers_free(struct answers *answers);

#endif
