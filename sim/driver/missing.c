/* Entry points that the program asked cuGetProcAddress for, and did not get: counted by name, for the lines at exit and
 * strata_sim_get_missing. Guarded by sim.lock. */
#include "driver/enter.h"
#include <string.h>

enum { MOST_NAMES = 256, NAME_ROOM = 64 };

static struct {
    char name[NAME_ROOM];
    uint64_t times;
} missing[MOST_NAMES];
static size_t kept;
static uint64_t others; /* requests for names that are not kept */

/* Copies as much of a name as fits, without characters that would confuse a terminal. */
static void copy_name(char to[NAME_ROOM], const char *name)
{
    size_t length = strnlen(name, NAME_ROOM - 1);
    for (size_t i = 0; i < length; i++)
        to[i] = '!' <= name[i] && name[i] <= '~' ? name[i] : '?';
    to[length] = '\0';
}

void sim_missing_note(const char *name)
{
    char copy[NAME_ROOM];
    copy_name(copy, name);
    size_t i = 0;
    while (i < kept && strcmp(missing[i].name, copy) != 0)
        i++;
    if (i == MOST_NAMES) {
        others++;
        return;
    }
    if (i == kept)
        memcpy(missing[kept++].name, copy, sizeof copy);
    missing[i].times++;
}

void sim_missing_print(FILE *out)
{
    for (size_t i = 0; i < kept; i++) {
        fprintf(out, "%s%s", i == 0 ? "strata-sim: missing entry points: " : ", ", missing[i].name);
        if (missing[i].times > 1)
            fprintf(out, " (%llu times)", (unsigned long long)missing[i].times);
    }
    if (others > 0)
        fprintf(out, ", and %llu more requests", (unsigned long long)others);
    if (kept > 0)
        fputc('\n', out);
}

CUresult strata_sim_get_missing(uint64_t index, strata_sim_missing *found)
{
    CUresult result = CUDA_ERROR_INVALID_VALUE;
    if (!sim_lock())
        return CUDA_ERROR_NOT_PERMITTED;
    if (found && index < kept) {
        *found = (strata_sim_missing){sizeof *found, missing[index].name, missing[index].times};
        result = CUDA_SUCCESS;
    }
    pthread_mutex_unlock(&sim.lock);
    return result;
}
