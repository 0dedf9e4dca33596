/* Writes the answers: one line a question, flushed at once, so that a crash loses none. */
#include "ask.h"

#include <stdarg.h>
#include <stdio.h>

static void write_line(const char *question, va_list arguments, const char *text)
{
    vprintf(question, arguments);
    printf(" = %s\n", text);
    fflush(stdout);
}

void ask_text(const char *text, const char *question, ...)
{
    va_list arguments;
    va_start(arguments, question);
    write_line(question, arguments, text);
    va_end(arguments);
}

void ask(CUresult result, const char *question, ...)
{
    va_list arguments;
    va_start(arguments, question);
    write_line(question, arguments, result_name(result));
    va_end(arguments);
}

void ask_yes(bool fact, const char *question, ...)
{
    va_list arguments;
    va_start(arguments, question);
    write_line(question, arguments, fact ? "yes" : "no");
    va_end(arguments);
}

void ask_fact(CUresult result, bool fact, const char *question, ...)
{
    va_list arguments;
    va_start(arguments, question);
    write_line(question, arguments, result != CUDA_SUCCESS ? result_name(result) : fact ? "yes" : "no");
    va_end(arguments);
}

static void write_number(const char *question, va_list arguments, CUresult result, long long number)
{
    char text[32];
    snprintf(text, sizeof text, "%lld", number);
    write_line(question, arguments, result == CUDA_SUCCESS ? text : result_name(result));
}

void ask_number(long long number, const char *question, ...)
{
    va_list arguments;
    va_start(arguments, question);
    write_number(question, arguments, CUDA_SUCCESS, number);
    va_end(arguments);
}

void ask_value(CUresult result, long long number, const char *question, ...)
{
    va_list arguments;
    va_start(arguments, question);
    write_number(question, arguments, result, number);
    va_end(arguments);
}
