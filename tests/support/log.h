/* Shared by the tests of log files: a folder for each test, stacks that log into it, and the contents of a log. */
#ifndef STRATA_TESTS_SUPPORT_LOG_H
#define STRATA_TESTS_SUPPORT_LOG_H

#include "support/fixture.h"

#include "resources/logging/csv.h"
#include "tools/log/log_reader.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { PATH_ROOM = 256 };

/* ---- a folder for each test ---- */

static char folder[64];

static inline int make_folder(void **state)
{
    (void)state;
    strcpy(folder, "/tmp/strata-log-XXXXXX");
    return mkdtemp(folder) ? 0 : -1;
}

static inline int remove_folder(void **state)
{
    (void)state;
    char path[PATH_ROOM + 64];
    DIR *open = opendir(folder);
    for (struct dirent *entry; open && (entry = readdir(open));) {
        snprintf(path, sizeof path, "%s/%s", folder, entry->d_name);
        if (entry->d_name[0] != '.')
            unlink(path);
    }
    if (open)
        closedir(open);
    return rmdir(folder);
}

typedef struct name {
    char text[PATH_ROOM];
} name;

static inline name in_folder(const char *file)
{
    name path;
    snprintf(path.text, sizeof path.text, "%s/%s", folder, file);
    return path;
}

static inline bool exists(const char *file)
{
    return access(in_folder(file).text, F_OK) == 0;
}

static inline off_t size_of(const char *file)
{
    struct stat is = {0};
    return stat(in_folder(file).text, &is) == 0 ? is.st_size : -1;
}

/* ---- stacks ---- */

/* Makes the stack "logging(file=FOLDER/FILE MORE), null". */
static inline strata_status try_stack(const char *file, const char *more, strata_stack **out)
{
    char text[512];
    snprintf(text, sizeof text, "logging(file=\"%s\"%s), null", in_folder(file).text, more);
    return strata_stack_create(text, 0, out);
}

static inline strata_stack *make_stack(const char *file, const char *more)
{
    strata_stack *stack;
    check_ok(try_stack(file, more, &stack));
    return stack;
}

static inline void make_pairs(strata_stack *stack, int pairs)
{
    strata_resource *top = strata_stack_top(stack);
    strata_block block;
    for (int i = 0; i < pairs; i++) {
        check_ok(strata_resource_allocate(top, &(strata_request){.bytes = (size_t)i + 1}, &block));
        check_ok(strata_resource_deallocate(top, &block, NULL));
    }
}

static inline uint64_t value(strata_stack *stack, const char *called)
{
    uint64_t read;
    check_ok(strata_control(stack, called, &read, NULL));
    return read;
}

static inline log_contents read_log(const char *file)
{
    log_contents contents;
    log_problem problem;
    if (!log_read_file(in_folder(file).text, LOG_MEMORY, &contents, &problem))
        fail_msg("%s: %s", file, problem.text);
    if (contents.damages)
        fail_msg("%s: %s", file, contents.damage[0].text);
    return contents;
}

/* Checks that records are pairs in order, as make_pairs makes them, from pair number `first` on. */
static inline void check_pairs(const strata_log_record *records, size_t count, uint64_t first)
{
    for (size_t i = 0; i < count; i++) {
        assert_int_equal(records[i].kind, i % 2 ? STRATA_LOG_DEALLOCATE : STRATA_LOG_ALLOCATE);
        assert_int_equal(records[i].requested, first + i / 2 + 1);
        assert_int_equal(records[i].number, 2 * first + i + 1);
    }
}

#endif
