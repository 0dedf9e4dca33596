/* A bar on stderr, redrawn in place. A signal that ends the program first ends the bar's line. */
#include "tools/progress.h"

#include "core/base/escape.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

/* Columns of the bar, the name, around the bar, and before the name. */
enum { WIDTH = 40, NAME = 40, AROUND = 7, GAP = 2, USUAL_COLUMNS = 80, SIGNALS = 3 };

static const int ending[SIGNALS] = {SIGINT, SIGTERM, SIGHUP};

static void end_line(int number)
{
    static const char line_end = '\n';
    ssize_t written = write(STDERR_FILENO, &line_end, 1);
    (void)written; /* the program ends either way */
    raise(number); /* default action: the handler was for one signal */
}

/* Ends the bar's line at a signal that ends the program; ignored and handled ones stay as they are. */
static void watch_signals(void)
{
    struct sigaction before, action = {.sa_handler = end_line, .sa_flags = (int)SA_RESETHAND};
    sigemptyset(&action.sa_mask);
    for (int i = 0; i < SIGNALS; i++)
        if (sigaction(ending[i], NULL, &before) == 0 && before.sa_handler == SIG_DFL)
            sigaction(ending[i], &action, NULL);
}

static void forget_signals(void)
{
    struct sigaction now, usual = {.sa_handler = SIG_DFL};
    sigemptyset(&usual.sa_mask);
    for (int i = 0; i < SIGNALS; i++)
        if (sigaction(ending[i], NULL, &now) == 0 && now.sa_handler == end_line)
            sigaction(ending[i], &usual, NULL);
}

void progress_open(progress *bar, bool wanted)
{
    const char *terminal = secure_getenv("TERM");
    bool can_draw = terminal && *terminal && strcmp(terminal, "dumb") != 0;
    *bar = (progress){.visible = wanted && can_draw && isatty(STDERR_FILENO), .drawn = -1};
    if (bar->visible)
        watch_signals();
}

/* "\r" does not return to the start of a wrapped line, and terminals differ about the last column. */
static int room_of_line(void)
{
    struct winsize is = {.ws_col = 0};
    const bool known = ioctl(STDERR_FILENO, TIOCGWINSZ, &is) == 0 && is.ws_col > 0;
    return (known ? is.ws_col : USUAL_COLUMNS) - 1;
}

void progress_show(progress *bar, uint64_t done, uint64_t total, const char *what)
{
    int percent = total ? (int)((double)done / (double)total * 100) : 100;
    if (!bar->visible || percent == bar->drawn)
        return;
    char cells[WIDTH + 1], name[NAME + 1] = "";
    const int room = room_of_line();
    const int width = room - AROUND < WIDTH ? (room > AROUND ? room - AROUND : 0) : WIDTH;
    const int rest = room - AROUND - width - GAP;
    int full = percent * width / 100;
    memset(cells, '#', (size_t)full);
    memset(cells + full, '.', (size_t)(width - full));
    cells[width] = '\0';
    if (rest > 0)
        strata_escape(name, rest < NAME ? (size_t)rest + 1 : sizeof name, what);
    fprintf(stderr, "\r[%s] %3d%%%s%s\033[K", cells, percent, *name ? "  " : "", name);
    bar->drawn = percent;
}

void progress_close(progress *bar)
{
    if (bar->visible && bar->drawn >= 0)
        fprintf(stderr, "\r\033[K");
    if (bar->visible)
        forget_signals();
    bar->drawn = -1;
}
