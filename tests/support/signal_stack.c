/* Call stacks by the C library alone, which prints them without allocating memory. */
#include "support/signal_stack.h"

#include <execinfo.h>
#include <signal.h>
#include <stddef.h>
#include <unistd.h>

static void print_signal(int number)
{
    void *frames[64];
    backtrace_symbols_fd(frames, backtrace(frames, 64), STDERR_FILENO);
    signal(number, SIG_DFL);
    raise(number);
}

void test_print_stack_on_signal(int number)
{
    backtrace(&(void *){NULL}, 1); /* the first call allocates memory */
    signal(number, print_signal);
}
