/* Runs programs that know nothing of Strata (tests/adapters/exec/programs), bare and under `strata exec`. */
#ifndef STRATA_TESTS_SUPPORT_EXEC_H
#define STRATA_TESTS_SUPPORT_EXEC_H

#include "support/command.h"

#include <jansson.h>
#include <stdarg.h>
#include <sys/stat.h>

enum { TEXT = 1000, TEXTS = 8 };

/* Formats a text, which is good for a few calls. */
static inline const char *text_of(const char *format, ...) __attribute__((format(printf, 1, 2)));

static inline const char *text_of(const char *format, ...)
{
    static char texts[TEXTS][TEXT];
    static unsigned next;
    char *text = texts[next++ % TEXTS];
    va_list arguments;
    va_start(arguments, format);
    const int length = vsnprintf(text, TEXT, format, arguments);
    va_end(arguments);
    assert_true(length >= 0 && length < TEXT);
    return text;
}

static char *folder;     /* of the programs */
static char *sim_folder; /* in which the simulated driver is libcuda */

static inline int find_folders(void **state)
{
    if (find_program(state) != 0)
        return -1;
#if defined TEST_PRELOAD /* the thread sanitizer's library, which the programs themselves are not built with */
    setenv("LD_PRELOAD", TEST_PRELOAD, 1);
#endif
    const int length = (int)(strrchr(program, '/') - program);
    folder = strdup(text_of("%.*s/exec", length, program));
    sim_folder = strdup(text_of("%.*s/../lib/strata-sim-as-cuda", length, program));
    return access(sim_folder, X_OK);
}

static inline int forget_folders(void **state)
{
    (void)state;
    free(folder);
    free(sim_folder);
    return 0;
}

/* Runs `strata exec --driver sim OPTIONS -- PROGRAM WORDS`, with PROGRAM from the folder unless it has a slash. */
static inline outcome *run_under(const char *options, const char *words)
{
    const bool own = *words != '/';
    return run(text_of("exec --driver sim%s%s -- %s%s%s", *options ? " " : "", options, own ? folder : "",
                       own ? "/" : "", words));
}

/* Runs a program without Strata. */
static inline outcome *run_bare(const char *words)
{
    char own_program[PATH_MAX];
    strcpy(own_program, program);
    const int length = (int)strcspn(words, " ");
    strcpy(program, text_of("%s/%.*s", folder, length, words));
    setenv("LD_LIBRARY_PATH", sim_folder, 1);
    outcome *result = run(words[length] ? words + length + 1 : "");
    unsetenv("LD_LIBRARY_PATH");
    strcpy(program, own_program);
    return result;
}

static inline void check(outcome *result, int status, const char *in_out, const char *in_err)
{
    assert_outcome(result, status, in_out, in_err);
    free(result);
}

/* Skips a test of what the address sanitizer forbids or cannot follow: the programs are built with it, too. */
static inline void skip_if_sanitized(void)
{
#if defined __SANITIZE_ADDRESS__
    skip();
#endif
}

/* ---- other drivers ---- */

/* Makes a folder with a link to a library of the programs' folder under another name; good until the next call. */
static inline const char *folder_with(const char *library, const char *name)
{
    static char path[] = "/tmp/strata-exec-hooks-XXXXXX";
    memcpy(strrchr(path, '-') + 1, "XXXXXX", 6);
    assert_non_null(mkdtemp(path));
    assert_int_equal(symlink(text_of("%s/%s", folder, library), text_of("%s/%s", path, name)), 0);
    return path;
}

static inline void remove_folder(const char *path, const char *name)
{
    unlink(text_of("%s/%s", path, name));
    rmdir(path);
}

/* As run_under, on a driver in `library` that leads to the simulated one. */
static inline outcome *run_behind(const char *library, const char *options, const char *words)
{
    const char *path = folder_with(library, "libcuda.so.1");
    setenv("NEWER_DRIVER_BEHIND", text_of("%s/libcuda.so.1", sim_folder), 1);
    outcome *result =
        run(text_of("exec --driver %s/libcuda.so.1%s%s -- %s/%s", path, *options ? " " : "", options, folder, words));
    unsetenv("NEWER_DRIVER_BEHIND");
    remove_folder(path, "libcuda.so.1");
    return result;
}

/* As run_under, on the driver with more functions than the simulated one. */
static inline outcome *run_wider(const char *options, const char *words)
{
    return run_behind("libwider_driver.so", options, words);
}

/* ---- the same answers ---- */

static inline void check_same(const char *options, const char *reference, const char *words)
{
    outcome *bare = run_bare(reference), *under = run_under(options, words);
    assert_int_equal(bare->status, 0);
    if (strcmp(bare->out, under->out) != 0)
        print_error("%s\nwithout:\n%s\nunder:\n%s%s\n", words, bare->out, under->out, under->err);
    assert_string_equal(under->out, bare->out);
    assert_int_equal(under->status, 0);
    free(bare);
    free(under);
}

static inline json_t *read_report(const outcome *result)
{
    json_error_t error;
    json_t *report = json_loads(result->err, 0, &error);
    if (!report)
        print_error("%s: %s\n", error.text, result->err);
    assert_non_null(report);
    return report;
}

#endif
