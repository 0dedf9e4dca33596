/* A bar on stderr, drawn over itself. A signal that ends the program in the middle of it, such as Ctrl-C, ends its line
 * first, so that the shell's prompt starts a line of its own. */
#include "tools/progress.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { WIDTH = 40, SIGNALS = 3 };

static const int ending[SIGNALS] = {SIGINT, SIGTERM, SIGHUP};

static void end_line(int number)
{
    static const char line_end = '\n';
    ssize_t written = write(STDERR_FILENO, &line_end, 1);
    (void)written; /* the program ends either way */
    raise(number); /* as it would have: the handler was for once */
}

/* Signals that are ignored or handled already stay as they are. */
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
    const char *terminal = getenv("TERM");
    bool can_draw = terminal && *terminal && strcmp(terminal, "dumb") != 0;
    *bar = (progress){.visible = wanted && can_draw && isatty(STDERR_FILENO), .drawn = -1};
    if (bar->visible)
        watch_signals();
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
    if (bar->visible)
        forget_signals();
    bar->drawn = -1;
}
