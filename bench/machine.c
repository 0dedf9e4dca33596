#include "machine.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static __attribute__((format(printf, 4, 5))) void add_fact(machine_fact *add, void *to, const char *name,
                                                           const char *format, ...)
{
    char text[400];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    add(to, name, text);
}

static void read_processor(char *name, size_t size)
{
    snprintf(name, size, "unknown processor");
    FILE *file = fopen("/proc/cpuinfo", "r");
    if (!file)
        return;
    char line[256];
    while (fgets(line, sizeof line, file)) {
        const char *value = strchr(line, ':');
        if (strncmp(line, "model name", 10) != 0 || !value)
            continue;
        snprintf(name, size, "%.*s", (int)strcspn(value + 2, "\n"), value + 2);
        break;
    }
    fclose(file);
}

void machine_describe(machine_fact *add, void *to, const strata_driver_info *driver, const strata_device_info *device,
                      size_t rounds)
{
    char processor[160], date[40];
    time_t now = time(NULL);
    struct tm utc;
    gmtime_r(&now, &utc);
    strftime(date, sizeof date, "%Y-%m-%d %H:%M UTC", &utc);
    read_processor(processor, sizeof processor);
    add_fact(add, to, "date", "%s", date);
    add_fact(add, to, "processor", "%s, %ld cores", processor, sysconf(_SC_NPROCESSORS_ONLN));
    add_fact(add, to, "gpu", "%s, %zu MiB", device->name, device->total_bytes >> 20);
    add_fact(add, to, "driver", "%s, CUDA %d.%d%s", driver->library, driver->version / 1000,
             driver->version % 1000 / 10, driver->simulated ? ", simulated" : "");
    add_fact(add, to, "strata", "%s", strata_version_string());
    add_fact(add, to, "rounds", "%zu, medians", rounds);
    if (driver->simulated)
        add_fact(add, to, "note",
                 "simulated driver: its bare figures say nothing about a GPU's, and all figures are of the "
                 "host alone");
}
