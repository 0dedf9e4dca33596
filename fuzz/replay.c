/* A main for fuzz targets without libFuzzer: runs the named files, and the files in the named folders, in order. A
 * failed check or a sanitizer ends the program; the last name printed is the input's. */
#include "fuzz/begin.h"
#include "support/signal_stack.h"

#include <dirent.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>

__attribute__((weak)) int LLVMFuzzerInitialize(int *count, char ***arguments)
{
    (void)count, (void)arguments;
    return 0;
}

/* The whole file in memory of exactly its size, so that reads beyond it are found. The caller frees it. */
static uint8_t *read_file(const char *path, size_t *size)
{
    FILE *file = fopen(path, "rb");
    uint8_t *bytes = NULL;
    *size = 0;
    if (!file || fseek(file, 0, SEEK_END) != 0)
        goto out;
    long length = ftell(file);
    if (length < 0 || fseek(file, 0, SEEK_SET) != 0)
        goto out;
    bytes = malloc(length ? (size_t)length : 1);
    *size = (size_t)length;
    if (bytes && fread(bytes, 1, *size, file) != *size) {
        free(bytes);
        bytes = NULL;
    }
out:
    if (file)
        fclose(file);
    return bytes;
}

static size_t run_file(const char *path)
{
    size_t size;
    uint8_t *bytes = read_file(path, &size);
    if (!bytes) {
        fprintf(stderr, "%s cannot be read\n", path);
        exit(1);
    }
    printf("%s\n", path);
    fflush(stdout);
    LLVMFuzzerTestOneInput(bytes, size);
    free(bytes);
    return 1;
}

static int is_visible(const struct dirent *entry)
{
    return entry->d_name[0] != '.';
}

static size_t run_folder(const char *path)
{
    struct dirent **entries;
    int count = scandir(path, &entries, is_visible, alphasort);
    if (count < 0) {
        fprintf(stderr, "%s cannot be read\n", path);
        exit(1);
    }
    size_t ran = 0;
    for (int i = 0; i < count; i++) {
        char name[4096];
        int length = snprintf(name, sizeof name, "%s/%s", path, entries[i]->d_name);
        if (length > 0 && (size_t)length < sizeof name)
            ran += run_file(name);
        free(entries[i]);
    }
    free(entries);
    return ran;
}

int main(int count, char **arguments)
{
    size_t ran = 0;
    LLVMFuzzerInitialize(&count, &arguments);
    test_print_stack_on_signal(SIGABRT);
    for (int i = 1; i < count; i++) {
        struct stat facts;
        bool is_folder = stat(arguments[i], &facts) == 0 && S_ISDIR(facts.st_mode);
        ran += is_folder ? run_folder(arguments[i]) : run_file(arguments[i]);
    }
    printf("%zu inputs\n", ran);
    return ran ? 0 : 1;
}
