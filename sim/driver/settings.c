/* Settings from the environment. An invalid value is an error; an empty one counts as unset. */
#include "driver/enter.h"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Why cuInit failed, "" if not because of the environment. Written by cuInit under sim.lock; read by its caller. */
static char problem[320];

const char *sim_settings_problem(void)
{
    return problem[0] ? problem : NULL;
}

/* Reads a number, which begins with a digit: no sign, no blank. False if there is none, or it is too large. */
static bool read_number(const char *text, const char **end, uint64_t *number)
{
    if (*text < '0' || *text > '9')
        return false;
    char *stop;
    errno = 0;
    unsigned long long value = strtoull(text, &stop, 10);
    *end = stop;
    *number = value;
    return errno == 0;
}

static bool read_seed(const char *text, sim_settings *settings)
{
    const char *end;
    return read_number(text, &end, &settings->seed) && *end == '\0';
}

static bool read_policy(const char *text, sim_settings *settings)
{
    static const char *const names[] = {"early", "random", "late"};
    for (int i = 0; i < 3; i++) {
        if (strcmp(text, names[i]) == 0) {
            settings->policy = (strata_sim_policy)i;
            return true;
        }
    }
    return false;
}

static bool read_devices(const char *text, sim_settings *settings)
{
    const char *end;
    uint64_t count;
    if (!read_number(text, &end, &count) || *end != '\0' || count < 1 || count > SIM_MAX_DEVICES)
        return false;
    settings->devices = (int)count;
    return true;
}

static bool read_memory(const char *text, sim_settings *settings)
{
    static const struct {
        const char *name;
        unsigned shift;
    } units[] = {{"B", 0}, {"KiB", 10}, {"MiB", 20}, {"GiB", 30}, {"TiB", 40}};
    const char *end;
    uint64_t number;
    if (!read_number(text, &end, &number))
        return false;
    for (size_t i = 0; i < sizeof units / sizeof units[0]; i++) {
        if (strcmp(end, units[i].name) == 0) {
            if (number > (SIM_MOST_MEMORY) >> units[i].shift)
                return false;
            settings->memory = number << units[i].shift;
            return settings->memory >= SIM_LEAST_MEMORY;
        }
    }
    return false;
}

static bool is_word(const char *text, size_t length, const char *word)
{
    return strlen(word) == length && memcmp(word, text, length) == 0;
}

/* The modes that a word turns on. 0: the word is unknown. */
static uint32_t mode_of(const char *text, size_t length)
{
    static const struct {
        const char *name;
        uint32_t mode;
    } words[] = {
        {"unwritten", STRATA_SIM_CHECK_UNWRITTEN},           {"pages", STRATA_SIM_CHECK_PAGES},
        {"host-functions", STRATA_SIM_CHECK_HOST_FUNCTIONS}, {"frees", STRATA_SIM_CHECK_FREES},
        {"no-stacks", STRATA_SIM_CHECK_NO_STACKS},           {"leaks", STRATA_SIM_CHECK_LEAKS},
    };
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++)
        if (is_word(text, length, words[i].name))
            return words[i].mode | STRATA_SIM_CHECK_ON;
    return 0;
}

/* The modes of words with commas between. 0: one is unknown. */
static uint32_t modes_of(const char *text)
{
    uint32_t modes = 0;
    for (;;) {
        size_t length = strcspn(text, ",");
        uint32_t mode = mode_of(text, length);
        if (mode == 0)
            return 0;
        modes |= mode;
        if (text[length] == '\0')
            return modes;
        text += length + 1;
    }
}

/* Reads STRATA_SIM_CHECK: 0, 1, or words. */
static bool read_check(const char *text, sim_settings *settings)
{
    bool off = strcmp(text, "0") == 0;
    settings->check = off ? STRATA_SIM_CHECK_OFF : strcmp(text, "1") == 0 ? STRATA_SIM_CHECK_ON : modes_of(text);
    settings->check_writes = settings->check != 0 || settings->check_writes;
    return off || settings->check != 0;
}

/* Returns the absolute path of a file; %p becomes the process id. NULL without memory. */
static char *file_name(const char *pattern)
{
    char *here = pattern[0] == '/' ? NULL : getcwd(NULL, 0);
    const char *mark = strstr(pattern, "%p");
    int before = mark ? (int)(mark - pattern) : (int)strlen(pattern);
    char process[16] = "";
    if (mark)
        snprintf(process, sizeof process, "%ld", (long)getpid());
    char *name = NULL;
    int bytes = asprintf(&name, "%s%s%.*s%s%s", here ? here : "", here ? "/" : "", before, pattern, process,
                         mark ? mark + 2 : "");
    free(here);
    return bytes >= 0 ? name : NULL;
}

static bool read_check_file(const char *text, sim_settings *settings)
{
    free(settings->check_file);
    settings->check_file = file_name(text);
    settings->check_writes = true;
    return settings->check_file != NULL;
}

static bool read_check_exit(const char *text, sim_settings *settings)
{
    const char *end;
    uint64_t status;
    if (!read_number(text, &end, &status) || *end != '\0' || status < 1 || status > 255)
        return false;
    settings->check_exit = (int)status;
    settings->check_writes = true;
    return true;
}

static bool read_lacks(const char *text, sim_settings *settings)
{
    settings->lacks_virtual_memory = strcmp(text, "virtual-memory") == 0;
    return settings->lacks_virtual_memory;
}

/* Reads a version such as 13.1, from SIM_OLDEST_VERSION to SIM_NEWEST_VERSION. */
static bool read_cuda(const char *text, sim_settings *settings)
{
    uint64_t major, minor;
    const char *end;
    if (!read_number(text, &end, &major) || *end != '.' || !read_number(end + 1, &end, &minor) || *end != '\0' ||
        major > SIM_NEWEST_VERSION / 1000 || minor > 9)
        return false;
    const int version = 1000 * (int)major + 10 * (int)minor;
    if (version < SIM_OLDEST_VERSION || version > SIM_NEWEST_VERSION)
        return false;
    settings->version = version;
    return true;
}

/* Before cuInit, from the environment: a program may ask for entry points and the version then. */
int sim_version(void)
{
    const bool locked = sim_lock(); /* else the thread has it */
    sim_settings settings = {.version = sim.settings.version};
    bool started = sim.phase != SIM_NOT_INITIALIZED;
    if (locked)
        pthread_mutex_unlock(&sim.lock);
    const char *text = started ? NULL : secure_getenv("STRATA_SIM_CUDA");
    if (text && *text)
        (void)read_cuda(text, &settings);
    return settings.version;
}

CUresult sim_settings_read(sim_settings *settings)
{
    static const struct {
        const char *variable;
        bool (*read)(const char *text, sim_settings *settings);
        size_t set;
        const char *expected;
    } variables[] = {
        {"STRATA_SIM_SEED", read_seed, offsetof(sim_settings, seed_set), "a whole number"},
        {"STRATA_SIM_POLICY", read_policy, offsetof(sim_settings, policy_set), "early, random or late"},
        {"STRATA_SIM_DEVICES", read_devices, offsetof(sim_settings, devices_set), "a whole number from 1 to 64"},
        {"STRATA_SIM_MEMORY", read_memory, offsetof(sim_settings, memory_set),
         "a whole number and B, KiB, MiB, GiB or TiB, at least 64MiB"},
        {"STRATA_SIM_CHECK", read_check, offsetof(sim_settings, check_set),
         "0, 1, or some of unwritten, pages, host-functions, frees, leaks and no-stacks, with commas between them"},
        {"STRATA_SIM_CHECK_FILE", read_check_file, offsetof(sim_settings, never_set), "a file's name"},
        {"STRATA_SIM_CHECK_EXIT", read_check_exit, offsetof(sim_settings, never_set), "a whole number from 1 to 255"},
        {"STRATA_SIM_CUDA", read_cuda, offsetof(sim_settings, never_set), "13.0, or another from 12.0 to 13.5"},
        {"STRATA_SIM_LACKS", read_lacks, offsetof(sim_settings, never_set), "virtual-memory"},
    };
    problem[0] = '\0';
    for (size_t i = 0; i < sizeof variables / sizeof variables[0]; i++) {
        const char *text = secure_getenv(variables[i].variable);
        bool *set = (bool *)((char *)settings + variables[i].set);
        if (text && *text && !*set && !variables[i].read(text, settings)) {
            snprintf(problem, sizeof problem, "%s is \"%.120s\": expected %s", variables[i].variable, text,
                     variables[i].expected);
            return CUDA_ERROR_INVALID_VALUE;
        }
    }
    return CUDA_SUCCESS;
}
