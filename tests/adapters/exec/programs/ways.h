/* Programs that do one of several things, named by their first argument. */
#ifndef STRATA_TESTS_EXEC_WAYS_H
#define STRATA_TESTS_EXEC_WAYS_H

#include <stdio.h>
#include <string.h>

typedef struct named_way {
    const char *name;
    void (*run)(void);
} named_way;

/* Behind begin(). Returns main's exit status. */
static inline int run_way(const named_way *ways, size_t way_count, int count, char **arguments)
{
    for (size_t i = 0; count > 1 && i < way_count; i++)
        if (strcmp(ways[i].name, arguments[1]) == 0) {
            ways[i].run();
            return 0;
        }
    printf("%s is none of the program's ways\n", count > 1 ? arguments[1] : "nothing");
    return 3;
}

#endif
