/* Manual pages, in the macros of man(7). */
#include "tools/help/usage_tables.h"

#include <ctype.h>
#include <string.h>

/* Prints text of a page so that nothing in it is a macro or an escape, and hyphens can be searched for and copied. */
static void print_text(FILE *to, const char *text, size_t length)
{
    bool line_start = true;
    for (size_t i = 0; i < length; i++) {
        const char c = text[i];
        if (line_start && (c == '.' || c == '\''))
            fputs("\\&", to);
        if (c == '\\')
            fputs("\\e", to);
        else if (c == '-')
            fputs("\\-", to);
        else
            fputc(c, to);
        line_start = c == '\n';
    }
}

static void print_string(FILE *to, const char *text)
{
    print_text(to, text, strlen(text));
}

/* Prints paragraphs, which empty lines separate; one that begins with "Exit status: " becomes a section. */
static void print_paragraphs(FILE *to, const char *text, size_t length)
{
    static const char exit_status[] = "Exit status: ";
    const char *end = text + length;
    for (bool first = true; text < end; first = false) {
        const char *stop = memmem(text, (size_t)(end - text), "\n\n", 2);
        stop = stop ? stop : end;
        const bool section = strncmp(text, exit_status, sizeof exit_status - 1) == 0;
        text += section ? sizeof exit_status - 1 : 0;
        fputs(section ? ".SH EXIT STATUS\n" : first ? "" : ".PP\n", to);
        print_text(to, text, (size_t)(stop - text));
        fputc('\n', to);
        text = stop == end ? end : stop + 2;
    }
}

static void print_option(FILE *to, const usage_option *option)
{
    fputs(".TP\n", to);
    if (option->letter)
        fprintf(to, "\\fB\\-%c\\fR, ", option->letter);
    fputs("\\fB\\-\\-", to);
    print_string(to, option->name);
    fputs("\\fR", to);
    if (option->value)
        fprintf(to, "=\\fI%s\\fR", option->value);
    fputc('\n', to);
    print_string(to, option->help);
    fputc('\n', to);
}

static void print_commands(FILE *to)
{
    const command *each;
    fputs(".SH COMMANDS\n", to);
    for (size_t i = 0; (each = command_at(i)); i++) {
        fprintf(to, ".TP\n\\fB%s\\fR\n", each->name);
        print_string(to, each->summary);
        fputc('\n', to);
    }
}

static void print_see_also(FILE *to, const command *of)
{
    const command *each;
    fputs(".SH SEE ALSO\n", to);
    if (of)
        fputs(".BR strata (1)", to);
    for (size_t i = 0; (each = command_at(i)); i++)
        if (each != of)
            fprintf(to, "%s.BR strata\\-%s (1)", of || i ? ",\n" : "", each->name);
    fputc('\n', to);
}

/* Upper case, for the heading. */
static void print_upper(FILE *to, const char *text)
{
    for (; *text; text++)
        fputc(toupper((unsigned char)*text), to);
}

void usage_print_manual(FILE *to, const command *of)
{
    const struct argp *argp = of ? of->argp : &command_strata_argp;
    usage_option options[USAGE_OPTIONS];
    const size_t count = usage_options(argp, options);
    const char *before = argp->doc, *after = strchr(before, '\v');
    const size_t length = after ? (size_t)(after - before) : strlen(before);
    fputs(".TH STRATA", to);
    if (of)
        fputs("\\-", to);
    print_upper(to, of ? of->name : "");
    fprintf(to, " 1 \"\" \"Strata %s\"\n.SH NAME\nstrata%s%s \\- ", strata_version_string(), of ? "\\-" : "",
            of ? of->name : "");
    print_string(to, of ? of->summary : command_strata_summary);
    fprintf(to, "\n.SH SYNOPSIS\n\\fB%s\\fR [\\fIOPTION\\fR...] ", of ? of->program : "strata");
    print_string(to, argp->args_doc ? argp->args_doc : "");
    fputs("\n.SH DESCRIPTION\n", to);
    print_paragraphs(to, before, length);
    if (!of)
        print_commands(to);
    fputs(".SH OPTIONS\n", to);
    for (size_t i = 0; i < count; i++)
        print_option(to, &options[i]);
    if (after) {
        if (strncmp(after + 1, "Exit status: ", 13) != 0)
            fputs(".SH NOTES\n", to);
        print_paragraphs(to, after + 1, strlen(after + 1));
    }
    print_see_also(to, of);
}
