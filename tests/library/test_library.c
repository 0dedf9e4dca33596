/* The shared library as others see it: the names that it gives them, and a program that is not linked with it and opens
 * it late, as an interpreter does. */
#include <elf.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "support/driver.h"

static const char *library_path(void)
{
    const char *path = getenv("STRATA_TEST_LIBRARY");
    if (!path)
        skip();
    return path;
}

/* ---- names ---- */

typedef struct image {
    const char *bytes;
    size_t size;
} image;

static image map_library(void)
{
    struct stat about;
    int file = open(library_path(), O_RDONLY | O_CLOEXEC);
    assert_true(file >= 0);
    assert_int_equal(fstat(file, &about), 0);
    image library = {.size = (size_t)about.st_size};
    library.bytes = mmap(NULL, library.size, PROT_READ, MAP_PRIVATE, file, 0);
    assert_ptr_not_equal(library.bytes, MAP_FAILED);
    close(file);
    return library;
}

static const Elf64_Shdr *find_section(image library, Elf64_Word type)
{
    const Elf64_Ehdr *head = (const void *)library.bytes;
    assert_memory_equal(head->e_ident, ELFMAG, SELFMAG);
    const Elf64_Shdr *sections = (const void *)(library.bytes + head->e_shoff);
    for (size_t i = 0; i < head->e_shnum; i++)
        if (sections[i].sh_type == type)
            return &sections[i];
    fail_msg("no section of type %u", (unsigned)type);
    return NULL;
}

/* What the coverage and the sanitizers put into every library is not the library's own. */
static bool is_the_compilers(const char *name)
{
#if defined(STRATA_COVERAGE) || defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    return strncmp(name, "strata_", 7) != 0;
#else
    (void)name;
    return false;
#endif
}

static void the_library_gives_away_no_name_but_its_own(void **state)
{
    (void)state;
    image library = map_library();
    const Elf64_Ehdr *head = (const void *)library.bytes;
    const Elf64_Shdr *sections = (const void *)(library.bytes + head->e_shoff);
    const Elf64_Shdr *table = find_section(library, SHT_DYNSYM);
    const Elf64_Sym *symbols = (const void *)(library.bytes + table->sh_offset);
    const char *names = library.bytes + sections[table->sh_link].sh_offset;
    size_t given = 0;
    for (size_t i = 0; i < table->sh_size / sizeof *symbols; i++) {
        const char *name = names + symbols[i].st_name;
        if (symbols[i].st_shndx == SHN_UNDEF || is_the_compilers(name))
            continue;
        const bool host_memory =
            strncmp(name, "strata_host_", 12) == 0 && strncmp(name, "strata_host_buffer_", 19) != 0;
        if (strncmp(name, "strata_", 7) != 0 || strncmp(name, "strata_je_", 10) == 0 || host_memory ||
            strncmp(name, "strata_arena_", 13) == 0)
            fail_msg("the library exports %s", name);
        given += strcmp(name, "strata_control") == 0;
    }
    assert_int_equal(given, 1);
    munmap((void *)(uintptr_t)library.bytes, library.size);
}

/* ---- an interpreter ---- */

static const char script[] =
    "import ctypes, sys\n"
    "strata = ctypes.CDLL(sys.argv[1])\n"
    "strata.strata_last_error.restype = ctypes.c_void_p\n"
    "stack, got = ctypes.c_void_p(), ctypes.c_uint64()\n"
    "def check(status):\n"
    "    if status:\n"
    "        sys.exit('status %d: %r' % (status, ctypes.string_at(strata.strata_last_error(), 600)))\n"
    "check(strata.strata_driver_choose(b'sim'))\n"
    "check(strata.strata_stack_create(b'budget, statistics, async', 0, ctypes.byref(stack)))\n"
    "check(strata.strata_control(stack, b'host.bytes', ctypes.byref(got), None))\n"
    "if got.value < 30000:\n"
    "    sys.exit('%d bytes' % got.value)\n"
    "check(strata.strata_stack_destroy(stack))\n"
    "sys.exit(23)\n";

static void an_interpreter_opens_the_library_late(void **state)
{
    (void)state;
    const char *path = library_path();
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    skip(); /* a sanitizer must be there from the start of a program */
#endif
    if (system("python3 -c 'import ctypes' 2>/dev/null") != 0)
        skip();
    fflush(NULL);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        setenv("STRATA_DRIVER", "sim", 1);
        execlp("python3", "python3", "-c", script, path, (char *)NULL);
        _exit(1);
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 23);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_library_gives_away_no_name_but_its_own),
        cmocka_unit_test(an_interpreter_opens_the_library_late),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
