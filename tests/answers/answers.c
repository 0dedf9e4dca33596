/* Sets of answers: an array with linear search, which is fast enough for two thousand questions. */
#include "answers.h"

#include <stdlib.h>
#include <string.h>

static const char separator[] = " = ";

const struct answer *answers_find(const struct answers *answers, const char *question)
{
    for (size_t i = 0; i < answers->count; i++) {
        if (strcmp(answers->items[i].question, question) == 0)
            return &answers->items[i];
    }
    return NULL;
}

static bool reserve_one(struct answers *answers)
{
    if (answers->count < answers->capacity)
        return true;
    size_t capacity = answers->capacity == 0 ? 256 : 2 * answers->capacity;
    struct answer *items = realloc(answers->items, capacity * sizeof *items);
    if (items == NULL)
        return false;
    answers->items = items;
    answers->capacity = capacity;
    return true;
}

bool answers_add(struct answers *answers, const char *line)
{
    const char *end = strstr(line, separator);
    if (end == NULL || end == line || !reserve_one(answers))
        return false;
    char *question = strndup(line, (size_t)(end - line));
    char *text = strdup(end + strlen(separator));
    if (question == NULL || text == NULL || answers_find(answers, question) != NULL) {
        free(question);
        free(text);
        return false;
    }
    answers->items[answers->count++] = (struct answer){question, text};
    return true;
}

static bool read_lines(struct answers *answers, const char *path, FILE *file)
{
    char line[1024];
    for (int number = 1; fgets(line, sizeof line, file) != NULL; number++) {
        line[strcspn(line, "\n")] = '\0';
        if (line[0] == '\0' || line[0] == '#')
            continue;
        if (!answers_add(answers, line)) {
            fprintf(stderr, "%s:%d: expected \"question = text\" with a question not seen before\n", path, number);
            return false;
        }
    }
    return !ferror(file);
}

bool answers_read(struct answers *answers, const char *path)
{
    FILE *file = fopen(path, "r");
    if (file == NULL) {
        perror(path);
        return false;
    }
    bool read = read_lines(answers, path, file);
    fclose(file);
    return read;
}

size_t answers_compare(const struct answers *expected, const struct answers *given, const struct answers *excused,
                       FILE *out)
{
    size_t reports = 0;
    for (size_t i = 0; i < expected->count; i++) {
        const struct answer *want = &expected->items[i];
        const struct answer *have = answers_find(given, want->question);
        bool same = have != NULL && strcmp(have->text, want->text) == 0;
        const struct answer *excuse = answers_find(excused, want->question);
        if (same == (excuse == NULL))
            continue;
        reports++;
        if (same)
            fprintf(out, "stale: %s: the answers agree, but a difference is listed: %s\n", want->question,
                    excuse->text);
        else if (have == NULL)
            fprintf(out, "unanswered: %s: expected %s\n", want->question, want->text);
        else
            fprintf(out, "differs: %s: expected %s, answered %s\n", want->question, want->text, have->text);
    }
    for (size_t i = 0; i < given->count; i++) {
        const char *question = given->items[i].question;
        if (answers_find(expected, question) != NULL || answers_find(excused, question) != NULL)
            continue;
        reports++;
        fprintf(out, "unexpected: %s: answered %s\n", question, given->items[i].text);
    }
    for (size_t i = 0; i < excused->count; i++) {
        const char *question = excused->items[i].question;
        if (answers_find(expected, question) != NULL || answers_find(given, question) != NULL)
            continue;
        reports++;
        fprintf(out, "stale: %s: a difference is listed, but nobody asks\n", question);
    }
    return reports;
}

void answers_free(struct answers *answers)
{
    for (size_t i = 0; i < answers->count; i++) {
        free(answers->items[i].question);
        free(answers->items[i].text);
    }
    free(answers->items);
    *answers = (struct answers){0};
}
