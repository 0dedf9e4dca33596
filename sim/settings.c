/* What the environment asks of the simulation. A value that means nothing is an error, never a default. */
#include "sim.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* A whole number at the start of text, in decimal digits alone. */
static bool read_number(const char *text, const char **end, uint64_t *number)
{
    if (*text < '0' || *text > '9') {
        return false;
    }
    char *stop;
    errno = 0;
    unsigned long long value = strtoull(text, &stop, 10);
    *end = stop;
    *number = value;
    return errno == 0;
}

static bool read_seed(const char *text, struct sim_settings *settings)
{
    const char *end;
    return read_number(text, &end, &settings->seed) && *end == '\0';
}

static bool read_policy(const char *text, struct sim_settings *settings)
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

static bool read_devices(const char *text, struct sim_settings *settings)
{
    const char *end;
    uint64_t count;
    if (!read_number(text, &end, &count) || *end != '\0' || count < 1 || count > SIM_MAX_DEVICES) {
        return false;
    }
    settings->devices = (int)count;
    return true;
}

static bool read_memory(const char *text, struct sim_settings *settings)
{
    static const struct {
        const char *name;
        unsigned shift;
    } units[] = {{"B", 0}, {"KiB", 10}, {"MiB", 20}, {"GiB", 30}, {"TiB", 40}};
    const char *end;
    uint64_t number;
    if (!read_number(text, &end, &number)) {
        return false;
    }
    for (size_t i = 0; i < sizeof units / sizeof units[0]; i++) {
        if (strcmp(end, units[i].name) == 0) {
            if (number > (SIM_MOST_MEMORY) >> units[i].shift) {
                return false;
            }
            settings->memory = number << units[i].shift;
            return settings->memory >= SIM_LEAST_MEMORY;
        }
    }
    return false;
}

CUresult sim_settings_read(struct sim_settings *settings)
{
    static const struct {
        const char *variable;
        bool (*read)(const char *text, struct sim_settings *settings);
        size_t set;
    } variables[] = {
        {"STRATA_SIM_SEED", read_seed, offsetof(struct sim_settings, seed_set)},
        {"STRATA_SIM_POLICY", read_policy, offsetof(struct sim_settings, policy_set)},
        {"STRATA_SIM_DEVICES", read_devices, offsetof(struct sim_settings, devices_set)},
        {"STRATA_SIM_MEMORY", read_memory, offsetof(struct sim_settings, memory_set)},
    };
    for (size_t i = 0; i < sizeof variables / sizeof variables[0]; i++) {
        const char *text = getenv(variables[i].variable);
        bool *set = (bool *)((char *)settings + variables[i].set);
        if (text && !*set && !variables[i].read(text, settings)) {
            return CUDA_ERROR_INVALID_VALUE;
        }
    }
    return CUDA_SUCCESS;
}
