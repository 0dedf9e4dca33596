#include "machine.h"

#include <string.h>
#include <time.h>
#include <unistd.h>

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

void machine_describe(report *to, const strata_driver_info *driver, const strata_device_info *device, size_t rounds)
{
    char processor[160], date[40];
    time_t now = time(NULL);
    struct tm utc;
    gmtime_r(&now, &utc);
    strftime(date, sizeof date, "%Y-%m-%d %H:%M UTC", &utc);
    read_processor(processor, sizeof processor);
    report_add_fact(to, "date", "%s", date);
    report_add_fact(to, "processor", "%s, %ld cores", processor, sysconf(_SC_NPROCESSORS_ONLN));
    report_add_fact(to, "gpu", "%s, %zu MiB", device->name, device->total_bytes >> 20);
    report_add_fact(to, "driver", "%s, CUDA %d.%d%s", driver->library, driver->version / 1000,
                    driver->version % 1000 / 10, driver->simulated ? ", simulated" : "");
    report_add_fact(to, "strata", "%s", strata_version_string());
    report_add_fact(to, "rounds", "%zu, medians", rounds);
    if (driver->simulated)
        report_add_fact(to, "note",
                        "simulated driver: its bare figures say nothing about a GPU's, and all figures are of the "
                        "host alone");
}
