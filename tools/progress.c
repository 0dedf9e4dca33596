/* A bar on stderr, drawn over itself. */
#include "tools/progress.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { WIDTH = 40 };

void progress_open(progress *bar, bool wanted)
{
    const char *terminal = getenv("TERM");
    bool can_draw = terminal && *terminal && strcmp(terminal, "dumb") != 0;
    *bar = (progress){.visible = wanted && can_draw && isatty(STDERR_FILENO), .drawn = -1};
}

void progress_show(progress *bar, uint64_t done, uint64_t total, const char *what)
{
    int percent = total ? (int)((double)done / (double)total * 100) : 100;
    if (!bar->visible || percent == bar->drawn)
        return;
    char cells[WIDTH + 1];
    int full = percent * WIDTH / 100;
    memset(cells, '#', (size_t)full);
    memset(cells + full, '.', (size_t)(WIDTH - full));
    cells[WIDTH] = '\0';
    fprintf(stderr, "\r[%s] %3d%%  %.40s\033[K", cells, percent, what);
    bar->drawn = percent;
}

void progress_close(progress *bar)
{
    if (bar->visible && bar->drawn >= 0)
        fprintf(stderr, "\r\033[K");
    bar->drawn = -1;
}
