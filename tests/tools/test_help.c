/* Help of the `strata` command: --help, manual pages and completion of shells say the same, and `strata layers` prints
 * what the layers' own tables have. */
#include "support/command.h"

#include "core/stack/layers.h"
#include "resources/builtin.h"
#include "resources/logging/csv.h"
#include "tools/command.h"

#include <jansson.h>

/* Output that is longer than an outcome's would be cut off. */
static void assert_printed(const outcome *of)
{
    assert_int_equal(of->status, 0);
    assert_string_equal(of->err, "");
    assert_in_range(strlen(of->out), 1, OUTPUT_LIMIT - 2);
}

static outcome *run_about(const char *format, const char *name)
{
    char line[128];
    snprintf(line, sizeof line, format, name);
    return run(line);
}

static void every_command_answers_h_help_and_strata_help_with_one_text(void **state)
{
    (void)state;
    const command *each;
    for (size_t i = 0; (each = command_at(i)); i++) {
        outcome *word = run_about("%s --help", each->name), *letter = run_about("%s -h", each->name);
        outcome *help = run_about("help %s", each->name), *mark = run_about("%s -?", each->name);
        assert_printed(word);
        assert_non_null(strstr(word->out, "-h, --help"));
        assert_non_null(strstr(word->out, each->program));
        assert_string_equal(letter->out, word->out);
        assert_string_equal(help->out, word->out);
        assert_string_equal(mark->out, word->out);
        assert_printed(letter);
        assert_printed(help);
        free(word), free(letter), free(help), free(mark);
    }
    outcome *word = run("--help"), *letter = run("-h"), *help = run("help");
    assert_printed(word);
    assert_string_equal(letter->out, word->out);
    assert_string_equal(help->out, word->out);
    for (size_t i = 0; (each = command_at(i)); i++) {
        assert_non_null(strstr(word->out, each->name));
        assert_non_null(strstr(word->out, each->summary));
    }
    free(word), free(letter), free(help);
    help = run("help nothing");
    assert_outcome(help, 2, "", "unknown command \"nothing\"");
    free(help);
}

/* A manual page escapes hyphens, so that they can be searched for. */
static bool has_option(const char *text, const char *name, bool manual)
{
    char escaped[64] = "";
    for (const char *at = name; *at; at++)
        strcat(escaped, manual && *at == '-' ? "\\-" : (char[]){*at, '\0'});
    char wanted[80];
    snprintf(wanted, sizeof wanted, "%s%s", manual ? "\\-\\-" : "", escaped);
    return strstr(text, wanted) != NULL;
}

static void every_option_is_in_the_manual_page_and_in_every_completion(void **state)
{
    (void)state;
    outcome *shells[] = {run("completion bash"), run("completion zsh"), run("completion fish")};
    const command *each;
    size_t options = 0;
    for (size_t i = 0; (each = command_at(i)); i++) {
        outcome *help = run_about("%s --help", each->name), *page = run_about("help --man %s", each->name);
        assert_printed(page);
        assert_non_null(strstr(page->out, ".SH SYNOPSIS\n"));
        for (char *at = strstr(help->out, "  --"); at; at = strstr(at + 1, "  --")) {
            char name[48] = "";
            assert_int_equal(sscanf(at, " --%47[a-z-]", name), 1);
            options++;
            if (!has_option(page->out, name, true))
                fail_msg("the page of %s lacks --%s", each->name, name);
            for (size_t shell = 0; shell < 3; shell++)
                if (!has_option(shells[shell]->out, name, false))
                    fail_msg("completion %zu lacks --%s of %s", shell, name, each->name);
        }
        free(help), free(page);
    }
    assert_in_range(options, 20, 200);
    for (size_t i = 0; i < 3; i++) {
        assert_printed(shells[i]);
        free(shells[i]);
    }
    outcome *of = run("completion tcsh");
    assert_outcome(of, 2, "", "expected bash, zsh or fish");
    free(of);
}

static void each_kind_of_record_can_be_found_out(void **state)
{
    (void)state;
    outcome *help = run("log --help"), *refused = run("log --kind fly x"), *shell = run("completion bash");
    for (int kind = 1; kind < STRATA_LOG_KIND_LIMIT; kind++) {
        const char *name = log_kind_name((strata_log_kind)kind);
        char option[48];
        snprintf(option, sizeof option, "log --kind %s /no/such/log", name);
        outcome *taken = run(option);
        assert_outcome(taken, 2, "", "/no/such/log: No such file or directory");
        free(taken);
        if (!strstr(help->out, name) || !strstr(refused->err, name) || !strstr(shell->out, name))
            fail_msg("%s is a kind of record that is left out", name);
    }
    free(help);
    free(refused);
    free(shell);
}

/* The build makes the files that cmake installs. */
static void the_build_has_made_the_files_that_are_installed(void **state)
{
    (void)state;
    static const struct {
        const char *line, *file;
    } made[] = {
        {"help --man", "man/man1/strata.1"},
        {"help --man replay", "man/man1/strata-replay.1"},
        {"completion bash", "bash-completion/completions/strata"},
        {"completion zsh", "zsh/site-functions/_strata"},
        {"completion fish", "fish/vendor_completions.d/strata.fish"},
    };
    static char whole[OUTPUT_LIMIT];
    char path[PATH_MAX + 64], folder[PATH_MAX];
    strcpy(folder, program);
    *strrchr(folder, '/') = '\0';
    const command *each;
    for (size_t i = 0; i < sizeof made / sizeof made[0]; i++) {
        outcome *of = run(made[i].line);
        snprintf(path, sizeof path, "%s/../share/%s", folder, made[i].file);
        read_whole(path, whole);
        assert_string_equal(whole, of->out);
        free(of);
    }
    for (size_t i = 0; (each = command_at(i)); i++) {
        snprintf(path, sizeof path, "%s/../share/man/man1/strata-%s.1", folder, each->name);
        assert_int_equal(access(path, R_OK), 0);
    }
}

/* What bash offers for a command line whose last word is being typed. */
static void assert_offered(const char *words, const char *expected)
{
    char line[512], got[1024] = "";
    outcome *script = run("completion bash");
    scratch_file file = scratch_write(script->out);
    free(script);
    snprintf(
        line, sizeof line,
        "bash -c 'source %s; COMP_WORDS=(%s); COMP_CWORD=$((${#COMP_WORDS[@]} - 1)); _strata; echo ${COMPREPLY[@]}'",
        file.path, words);
    FILE *from = popen(line, "r");
    assert_non_null(from);
    got[fread(got, 1, sizeof got - 1, from)] = '\0';
    assert_int_equal(pclose(from), 0);
    scratch_remove(&file);
    got[strcspn(got, "\n")] = '\0';
    assert_string_equal(got, expected);
}

static void bash_completes_commands_options_and_their_values(void **state)
{
    (void)state;
    assert_offered("strata re", "replay");
    assert_offered("strata replay --to", "--touch");
    assert_offered("strata log --kind al", "allocate");
    assert_offered("strata log --kind sy", "sync");
    assert_offered("strata replay --driver = au", "auto");
    assert_offered("strata layers po", "pool");
    assert_offered("strata help la", "layers");
    assert_offered("strata completion f", "fish");
}

static void layers_prints_each_layer_and_each_option_of_its_table(void **state)
{
    (void)state;
    assert_int_equal(strata_builtin_register(), STRATA_SUCCESS);
    outcome *all = run("layers");
    assert_printed(all);
    const strata_layer *layer;
    size_t options = 0;
    for (size_t i = 0; (layer = strata_layer_at(i)); i++) {
        assert_non_null(strstr(all->out, layer->name));
        assert_non_null(strstr(all->out, layer->help));
        outcome *one = run_about("layers %s", layer->name);
        assert_printed(one);
        assert_non_null(strstr(one->out, layer->owner ? "owner of memory" : "decorator"));
        for (size_t k = 0; k < layer->option_count; k++, options++) {
            char usage[160];
            const strata_option *option = &layer->options[k];
            snprintf(usage, sizeof usage, "  %s=%s", option->name, option->choices ? option->choices : "");
            if (!strstr(one->out, usage))
                fail_msg("strata layers %s lacks %s: %s", layer->name, option->name, one->out);
            if (option->type == STRATA_OPTION_MODE)
                assert_non_null(strstr(one->out, "mode=OCTAL"));
        }
        free(one);
    }
    assert_true(options > 50);
    free(all);
    outcome *of = run("layers poool");
    assert_outcome(of, 2, "", "unknown layer \"poool\"; known: async, ");
    free(of);
    of = run("layers pool budget");
    assert_outcome(of, 2, "", "unexpected \"budget\"");
    free(of);
}

static void layers_as_json_has_types_and_choices(void **state)
{
    (void)state;
    outcome *of = run("layers --json budget");
    assert_printed(of);
    json_t *list = json_loads(of->out, 0, NULL);
    assert_int_equal(json_array_size(list), 1);
    json_t *budget = json_array_get(list, 0), *option;
    assert_string_equal(json_string_value(json_object_get(budget, "name")), "budget");
    assert_string_equal(json_string_value(json_object_get(budget, "kind")), "decorator");
    size_t i, found = 0;
    json_array_foreach(json_object_get(budget, "options"), i, option)
    {
        const char *name = json_string_value(json_object_get(option, "name"));
        const char *type = json_string_value(json_object_get(option, "type"));
        if (strcmp(name, "limit") == 0)
            assert_string_equal(type, "amount");
        if (strcmp(name, "wait") != 0)
            continue;
        found++;
        assert_string_equal(type, "choice");
        assert_int_equal(json_array_size(json_object_get(option, "choices")), 3);
    }
    assert_int_equal(found, 1);
    json_decref(list);
    free(of);
    of = run("layers --json");
    list = json_loads(of->out, 0, NULL);
    assert_non_null(list);
    const strata_layer *layer;
    for (i = 0; (layer = strata_layer_at(i)); i++)
        assert_string_equal(json_string_value(json_object_get(json_array_get(list, i), "name")), layer->name);
    assert_int_equal(json_array_size(list), i);
    json_decref(list);
    free(of);
}

int main(void)
{
    command_use(command_table);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_command_answers_h_help_and_strata_help_with_one_text),
        cmocka_unit_test(every_option_is_in_the_manual_page_and_in_every_completion),
        cmocka_unit_test(each_kind_of_record_can_be_found_out),
        cmocka_unit_test(the_build_has_made_the_files_that_are_installed),
        cmocka_unit_test(bash_completes_commands_options_and_their_values),
        cmocka_unit_test(layers_prints_each_layer_and_each_option_of_its_table),
        cmocka_unit_test(layers_as_json_has_types_and_choices),
    };
    return cmocka_run_group_tests(tests, find_program, NULL);
}
