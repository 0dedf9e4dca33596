/* `strata completion`: completion of command lines for shells, from the tables behind --help. */
#include "tools/help/usage_tables.h"

#include <string.h>

/* A text within single quotes; `escaped` characters get a backslash. */
static void print_quoted(const char *text, const char *escaped)
{
    for (; *text; text++) {
        if (*text == '\'')
            fputs("'\\'", stdout);
        else if (strchr(escaped, *text))
            fputc('\\', stdout);
        fputc(*text, stdout);
    }
}

static bool takes_anything(const command_values *values)
{
    return values->words || values->files;
}

/* ---- bash ---- */

static void bash_reply(const command_values *values)
{
    fputs("words=\"", stdout);
    usage_print_words(stdout, values->words);
    fputs(values->files ? "\" files=1 ;;\n" : "\" ;;\n", stdout);
}

static void bash_options(const struct argp *argp)
{
    usage_option options[USAGE_OPTIONS];
    const size_t count = usage_options(argp, options);
    for (size_t i = 0; i < count; i++)
        printf("%s--%s", i ? " " : "", options[i].name);
}

static void bash_command(const command *of)
{
    usage_option options[USAGE_OPTIONS];
    const size_t count = usage_options(of->argp, options);
    for (size_t i = 0; i < count; i++) {
        if (!options[i].value)
            continue;
        printf("    %s,--%s", of->name, options[i].name);
        if (options[i].letter)
            printf("|%s,-%c", of->name, options[i].letter);
        fputs(") ", stdout);
        bash_reply(usage_values(of, options[i].name));
    }
    printf("    %s,*) if [[ $current == -* ]]; then words=\"", of->name);
    bash_options(of->argp);
    fputs("\"; else ", stdout);
    const command_values *arguments = usage_values(of, "");
    fputs("words=\"", stdout);
    usage_print_words(stdout, arguments->words);
    puts(arguments->files ? "\" files=1; fi ;;" : "\"; fi ;;");
}

static void print_bash(void)
{
    const command *each;
    puts("# Completion of `strata` for bash, made by `strata completion bash`.\n"
         "_strata()\n"
         "{\n"
         "    local current=${COMP_WORDS[COMP_CWORD]} previous=${COMP_WORDS[COMP_CWORD-1]}\n"
         "    local command=\"\" words=\"\" files=\"\" i\n"
         "    if [[ $current == \"=\" ]]; then\n"
         "        current=\"\"\n"
         "    elif [[ $previous == \"=\" ]]; then\n"
         "        previous=${COMP_WORDS[COMP_CWORD-2]}\n"
         "    fi\n"
         "    for ((i = 1; i < COMP_CWORD; i++)); do\n"
         "        [[ ${COMP_WORDS[i]} == -* ]] || { command=${COMP_WORDS[i]}; break; }\n"
         "    done\n"
         "    case $command,$previous in");
    for (size_t i = 0; (each = command_at(i)); i++)
        bash_command(each);
    fputs("    ,*) words=\"", stdout);
    usage_print_words(stdout, COMMAND_WORDS_COMMANDS);
    fputc(' ', stdout);
    bash_options(&command_strata_argp);
    puts("\" ;;\n"
         "    esac\n"
         "    mapfile -t COMPREPLY < <(compgen -W \"$words\" -- \"$current\")\n"
         "    [[ -z $files ]] || mapfile -t -O ${#COMPREPLY[@]} COMPREPLY < <(compgen -f -- \"$current\")\n"
         "}\n"
         "complete -o filenames -F _strata strata");
}

/* ---- zsh ---- */

static void zsh_action(const command_values *values)
{
    if (values->words) {
        fputs("{ compadd -- ", stdout);
        usage_print_words(stdout, values->words);
        fputs(values->files ? "; _files }" : " }", stdout);
    } else {
        fputs(values->files ? "_files" : " ", stdout);
    }
}

static void zsh_option(const command *of, const usage_option *option)
{
    const char *equals = option->value ? "=" : "", *plus = option->value ? "+" : "";
    if (option->letter)
        printf("'(-%c --%s)'{-%c%s,--%s%s}'[", option->letter, option->name, option->letter, plus, option->name,
               equals);
    else
        printf("'--%s%s[", option->name, equals);
    print_quoted(option->help, "[]:\\");
    fputc(']', stdout);
    if (option->value) {
        printf(":%s:", option->value);
        zsh_action(usage_values(of, option->name));
    }
    fputs("' \\\n            ", stdout);
}

static void zsh_command(const command *of)
{
    usage_option options[USAGE_OPTIONS];
    const size_t count = usage_options(of->argp, options);
    printf("        %s) _arguments \\\n            ", of->name);
    for (size_t i = 0; i < count; i++)
        zsh_option(of, &options[i]);
    fputs("'*:argument:", stdout);
    zsh_action(usage_values(of, ""));
    puts("' ;;");
}

static void print_zsh(void)
{
    static const command no_values = {.name = ""};
    usage_option options[USAGE_OPTIONS];
    const size_t count = usage_options(&command_strata_argp, options);
    const command *each;
    puts("#compdef strata\n"
         "# Completion of `strata` for zsh, made by `strata completion zsh`.\n"
         "_strata() {\n"
         "    local curcontext=\"$curcontext\" state line\n"
         "    typeset -A opt_args\n"
         "    local -a commands\n"
         "    commands=(");
    for (size_t i = 0; (each = command_at(i)); i++) {
        printf("        '%s:", each->name);
        print_quoted(each->summary, ":\\");
        puts("'");
    }
    fputs("    )\n"
          "    _arguments -C \\\n            ",
          stdout);
    for (size_t i = 0; i < count; i++)
        zsh_option(&no_values, &options[i]);
    puts("'1:command:->command' '*::argument:->arguments'\n"
         "    case $state in\n"
         "    command) _describe command commands ;;\n"
         "    arguments)\n"
         "        case $words[1] in");
    for (size_t i = 0; (each = command_at(i)); i++)
        zsh_command(each);
    puts("        esac ;;\n"
         "    esac\n"
         "}\n"
         "if [[ $funcstack[1] == _strata ]]; then # loaded by the first completion\n"
         "    _strata \"$@\"\n"
         "else\n"
         "    compdef _strata strata\n"
         "fi");
}

/* ---- fish ---- */

static void fish_values(const command_values *values)
{
    if (values->words) {
        fputs(" -a '", stdout);
        usage_print_words(stdout, values->words);
        fputc('\'', stdout);
    }
    if (values->files)
        fputs(" -F", stdout);
}

static void fish_option(const char *condition, const command *of, const usage_option *option)
{
    const command_values *values = usage_values(of, option->name);
    printf("complete -c strata -n '%s'", condition);
    if (option->letter)
        printf(" -s %c", option->letter);
    printf(" -l %s", option->name);
    if (option->value) {
        fputs(values->files ? " -r" : " -x", stdout);
        fish_values(values);
    }
    fputs(" -d '", stdout);
    print_quoted(option->help, "\\");
    puts("'");
}

static void fish_options(const char *condition, const command *of, const struct argp *argp)
{
    usage_option options[USAGE_OPTIONS];
    const size_t count = usage_options(argp, options);
    for (size_t i = 0; i < count; i++)
        fish_option(condition, of, &options[i]);
}

static void fish_command(const command *of)
{
    char condition[96];
    printf("complete -c strata -n __fish_use_subcommand -a %s -d '", of->name);
    print_quoted(of->summary, "\\");
    puts("'");
    snprintf(condition, sizeof condition, "__fish_seen_subcommand_from %s", of->name);
    fish_options(condition, of, of->argp);
    if (!takes_anything(usage_values(of, "")))
        return;
    printf("complete -c strata -n '%s'", condition);
    fish_values(usage_values(of, ""));
    putchar('\n');
}

static void print_fish(void)
{
    static const command no_values = {.name = ""};
    const command *each;
    puts("# Completion of `strata` for fish, made by `strata completion fish`.\n"
         "complete -c strata -f");
    fish_options("__fish_use_subcommand", &no_values, &command_strata_argp);
    for (size_t i = 0; (each = command_at(i)); i++)
        fish_command(each);
}

/* ---- the command ---- */

typedef struct shell {
    const char *name;
    void (*print)(void);
} shell;

static const shell shells[] = {{"bash", print_bash}, {"zsh", print_zsh}, {"fish", print_fish}};

static error_t parse(int key, char *text, struct argp_state *state)
{
    const shell **to = state->input;
    switch (key) {
    case ARGP_KEY_ARG:
        for (size_t i = 0; i < sizeof shells / sizeof shells[0]; i++)
            if (strcmp(shells[i].name, text) == 0 && state->arg_num == 0)
                *to = &shells[i];
        if (!*to || state->arg_num)
            argp_error(state, "unexpected \"%s\": expected bash, zsh or fish", text);
        return 0;
    case ARGP_KEY_NO_ARGS:
        argp_error(state, "missing shell: expected bash, zsh or fish");
        return EINVAL;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

static const char documentation[] =
    "Prints the completion of command lines for a shell: bash, zsh or fish."
    "\vAn installation has all three where the shells look. Without one, in bash: source <(strata completion bash)";

static const struct argp usage = {NULL, parse, "SHELL", documentation, command_common, NULL, NULL};

static const command_values values[] = {{"", "bash zsh fish", false}, {0}};

static int run(int argc, char **argv)
{
    const shell *chosen = NULL;
    if (!command_parse(&usage, argc, argv, 0, &chosen))
        return COMMAND_USAGE;
    chosen->print();
    return COMMAND_FINE;
}

const command command_completion = {
    "completion", "strata completion", "completion of command lines for a shell", &usage, values, run};
