/* A program that looks for the driver's functions and has no driver; and its child, which begins with the first call.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

/* What a program hears that asks for an error behind a look-up, since NULL could be a symbol's value. */
static void say(const char *what, const char *name, const void *found)
{
    const char *error = dlerror();
    printf("%s: %s%s\n", what, found ? "found" : "nothing", error && strstr(error, name) ? ", an error" : "");
}

static void ask_for_errors(const char *name)
{
    (void)dlerror();
    const void *found = dlsym(RTLD_DEFAULT, name);
    say("default", name, found);
    found = dlsym(RTLD_NEXT, name);
    say("next", name, found);
    found = dlvsym(RTLD_NEXT, name, "GLIBC_2.2.5");
    say("next version", name, found);
    found = dlsym(dlopen(NULL, RTLD_LAZY), name);
    say("program", name, found);
}

int main(int count, char **arguments)
{
    if (count > 1) {
        ask_for_errors(arguments[1]);
        return 0;
    }
    printf("dlsym: %s\n", dlsym(RTLD_DEFAULT, "cuMemAlloc_v2") ? "found" : "nothing");
    printf("dlvsym: %s\n", dlvsym(RTLD_DEFAULT, "cuMemAlloc_v2", "GLIBC_2.2.5") ? "found" : "nothing");
    printf("nvml: %s\n", dlsym(RTLD_DEFAULT, "nvmlDeviceGetMemoryInfo") ? "found" : "nothing");
    printf("others: %s\n", dlsym(RTLD_DEFAULT, "puts") ? "found" : "nothing");
    return 0;
}
