#include "competitors.h"

#include "arguments.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static const char production_stack[] = "budget, logging(format=null), statistics, pool";

typedef enum probed { PROBED_GOOD, PROBED_SYNTAX, PROBED_BAD } probed;

/* A child process tries the text: driver calls must be counted before this process opens the driver. */
static probed probe_stack(const char *text, bool say)
{
    int status;
    fflush(NULL);
    pid_t child = fork();
    if (child < 0)
        arguments_fail("fork", strerror(errno));
    if (child == 0) {
        strata_stack *made;
        strata_status answer = strata_stack_create(text, 0, &made);
        if (answer == STRATA_SUCCESS)
            answer = strata_stack_destroy(made);
        if (answer != STRATA_SUCCESS && say)
            fprintf(stderr, "strata_peers: --stack \"%s\": %s\n", text, strata_last_error()->message);
        exit(answer == STRATA_SUCCESS ? PROBED_GOOD : answer == STRATA_ERROR_SYNTAX ? PROBED_SYNTAX : PROBED_BAD);
    }
    while (waitpid(child, &status, 0) < 0)
        if (errno != EINTR)
            arguments_fail("waitpid", strerror(errno));
    return WIFEXITED(status) && WEXITSTATUS(status) <= PROBED_BAD ? (probed)WEXITSTATUS(status) : PROBED_BAD;
}

static peer_choice *add_choice(contest *of, const peer_kind *kind, const char *label, const char *about)
{
    if (of->count == PEERS_LIMIT)
        arguments_fail("that is one competitor too many", label);
    peer_choice *made = &of->choices[of->count++];
    *made = (peer_choice){.kind = kind};
    snprintf(made->label, sizeof made->label, "%s", label);
    snprintf(made->text, sizeof made->text, "%s", about);
    snprintf(made->about, sizeof made->about, "%s", about);
    return made;
}

static bool is_taken(const contest *of, const char *label)
{
    for (size_t i = 0; i < of->count; i++)
        if (strcmp(of->choices[i].label, label) == 0)
            return true;
    return false;
}

static void add_stack(contest *of, const char *text)
{
    char label[PEER_LABEL_SIZE], numbered[PEER_LABEL_SIZE];
    if (strlen(text) >= PEER_TEXT_SIZE)
        arguments_fail("--stack is too long", text);
    peer_label_stack(label, text);
    snprintf(numbered, sizeof numbered, "%s", label);
    for (unsigned number = 2; is_taken(of, numbered); number++)
        snprintf(numbered, sizeof numbered, "%.8s/%u", label, number % 100);
    peer_choice *made = add_choice(of, &peer_stack, numbered, text);
    snprintf(made->about, sizeof made->about, "Strata: %.400s", text);
    made->pool = strcmp(text, "pool") == 0;
    made->production = strcmp(text, production_stack) == 0;
}

void competitors_add_stacks(contest *of, const options *given)
{
    static const char *const usual[] = {"async", "direct", "null"};
    for (size_t i = 0; i < given->stack_count; i++) {
        if (probe_stack(given->stacks[i], true) != PROBED_GOOD)
            exit(ARGUMENTS_BAD);
        add_stack(of, given->stacks[i]);
    }
    if (given->stack_count)
        return;
    for (size_t i = 0; i < sizeof usual / sizeof usual[0]; i++)
        add_stack(of, usual[i]);
    if (probe_stack("pool", false) == PROBED_SYNTAX)
        return; /* there is no such layer */
    add_stack(of, "pool");
    add_stack(of, production_stack);
}

static void choose_libraries(contest *of, const options *given)
{
    for (size_t i = 0; i < given->library_count; i++) {
        char why[1024];
        peer_choice made;
        if (!peer_load(&made, given->libraries[i], why, sizeof why))
            arguments_fail("--peer", why);
        if (is_taken(of, made.label))
            arguments_fail("there is a competitor of that name already", made.label);
        *add_choice(of, made.kind, made.label, made.about) = made;
    }
}

void competitors_add_others(contest *of, const options *given)
{
    choose_libraries(of, given);
    add_choice(of, &peer_driver, "driver", "the driver's pool, called barely: cuMemAllocFromPoolAsync, cuMemFreeAsync")
        ->device = true;
    add_choice(of, &peer_floor, peer_floor_label(), peer_floor_about());
}

bool competitors_has_pool(const contest *of)
{
    for (size_t i = 0; i < of->count; i++)
        if (of->choices[i].pool)
            return true;
    return false;
}
