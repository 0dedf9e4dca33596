/* A client of examples/server.c, which sees it survive a fault: requests, more memory than a budget has, more requests
 * than a queue takes, a fault, and requests again.
 *
 *     example_server_client [--form process|isolated]     starts example_server, which stands beside it
 *     example_server_client --port N                      uses one that runs
 *
 * Exit status: 0 if the server did what its form does, 1 if not, 77 if this build has no services of the form. */
#include <arpa/inet.h>
#include <errno.h>
#include <limits.h>
#include <netinet/in.h>
#include <pthread.h>
#include <signal.h>
#include <spawn.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { SKIPPED = 77, ROOM = 4096, AT_ONCE = 32, BURSTS = 50, TRIES = 300 };

extern char **environ;

static int port;         /* of the server; written once, before other threads start */
static bool own_server;  /* started by this program */
static bool all_is_well; /* so far */

/* ---- HTTP ---- */

typedef struct reply {
    int code;       /* 0: no answer */
    char allow[32]; /* the header of this name; "" without */
    char body[ROOM];
} reply;

static int connect_to_server(void)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    const int descriptor = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (descriptor >= 0 && connect(descriptor, (struct sockaddr *)&address, sizeof address) == 0)
        return descriptor;
    if (descriptor >= 0)
        close(descriptor);
    return -1;
}

/* The server closes the connection after its answer. */
static void read_reply(int descriptor, reply *out)
{
    char text[ROOM];
    size_t length = 0;
    ssize_t got;
    while (length < sizeof text - 1 && (got = read(descriptor, text + length, sizeof text - 1 - length)) > 0)
        length += (size_t)got;
    text[length] = '\0';
    const char *body = strstr(text, "\r\n\r\n");
    const char *allow = strstr(text, "\r\nAllow: ");
    if (allow && allow < body)
        sscanf(allow, "\r\nAllow: %31[^\r]", out->allow);
    if (body && strncmp(text, "HTTP/1.1 ", 9) == 0) {
        out->code = (int)strtol(text + 9, NULL, 10);
        snprintf(out->body, sizeof out->body, "%s", body + 4);
    }
}

/* The body may have any bytes. */
static reply ask_with(const char *method, const char *path, const char *body, size_t bytes)
{
    char request[ROOM];
    reply out = {.code = 0};
    size_t length = (size_t)snprintf(
        request, sizeof request,
        "%s %s HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: %zu\r\n\r\n", method, path, bytes);
    if (length >= sizeof request || bytes > sizeof request - length)
        return out;
    memcpy(request + length, body, bytes);
    length += bytes;
    const int descriptor = connect_to_server();
    if (descriptor < 0)
        return out;
    if (send(descriptor, request, length, MSG_NOSIGNAL) == (ssize_t)length)
        read_reply(descriptor, &out);
    close(descriptor);
    return out;
}

/* A GET without a body, else a POST. */
static reply ask(const char *path, const char *body)
{
    return body ? ask_with("POST", path, body, strlen(body)) : ask_with("GET", path, "", 0);
}

/* ---- what is seen ---- */

/* Prints the request and its answer. */
static reply show(const char *path, const char *body)
{
    const reply out = ask(path, body);
    printf("%-16s %-30s %d %s\n", path, body ? body : "", out.code, out.body);
    return out;
}

static void expect(reply of, int code, const char *words)
{
    if (of.code == code && strstr(of.body, words))
        return;
    printf("  UNEXPECTED: instead of %d with \"%s\"\n", code, words);
    all_is_well = false;
}

static void *ask_for_a_product(void *data)
{
    reply *out = data;
    *out = ask("/beta/multiply", "{\"n\":128,\"a\":1,\"b\":1}");
    return NULL;
}

/* How many met a full queue. Each is answered, or told to come again. */
static int ask_many_at_once(void)
{
    static reply replies[AT_ONCE];
    pthread_t threads[AT_ONCE];
    int started = 0, fine = 0, full = 0;
    while (started < AT_ONCE && pthread_create(&threads[started], NULL, ask_for_a_product, &replies[started]) == 0)
        started++;
    for (int i = 0; i < started; i++) {
        pthread_join(threads[i], NULL);
        fine += replies[i].code == 200;
        full += replies[i].code == 503;
    }
    printf("%d products at once: %d were computed, %d met a full queue (503)\n", started, fine, full);
    if (!started || !fine || fine + full != started)
        expect((reply){.code = 0}, 200, "or 503, and some of 200");
    return full;
}

/* The queue of a server of the client's own is short: again, if they came one after another. */
static void fill_the_queue(void)
{
    int full = 0;
    for (int i = 0; i < BURSTS && !full && all_is_well; i++) {
        full = ask_many_at_once();
        if (!own_server)
            return;
    }
    if (!full && all_is_well)
        expect((reply){.code = 200}, 503, "a full queue");
}

/* The context is being replaced: 503 until then. */
static reply ask_until_ready(const char *path, const char *body)
{
    const struct timespec pause = {.tv_nsec = 100000000};
    reply out = ask(path, body);
    for (int i = 0; i < TRIES && out.code == 503; i++) {
        nanosleep(&pause, NULL);
        out = ask(path, body);
    }
    printf("%-16s %-30s %d %s\n", path, body, out.code, out.body);
    return out;
}

static void see_a_fault(bool isolated)
{
    static const char small[] = "{\"n\":64,\"a\":0.5,\"b\":2}";
    printf("\na kernel of alpha writes where no memory is:\n");
    expect(show("/alpha/fault", ""), 500, isolated ? "\"class\": \"poisoned\"" : "\"class\": \"unrecoverable\"");
    if (isolated) {
        printf("\nbeta does not notice, and alpha has a new context:\n");
        expect(show("/beta/multiply", small), 200, "64.0");
        expect(ask_until_ready("/alpha/multiply", small), 200, "64.0");
        expect(show("/stats", NULL), 200, "\"rebuilds\": 1");
        return;
    }
    printf("\nthe context was the server's own, and is lost for both; the server says so:\n");
    expect(show("/alpha/multiply", small), 500, "\"class\": \"unrecoverable\"");
    expect(show("/beta/multiply", small), 500, "\"class\": \"unrecoverable\"");
    expect(show("/stats", NULL), 200, "\"stopped\": \"STRATA_ERROR_");
}

/* Another method than the path has. */
static void expect_not_allowed(const char *method, const char *path, const char *allowed)
{
    const reply out = ask_with(method, path, "", 0);
    printf("%-16s %-30s %d %s\n", path, method, out.code, out.body);
    expect(out, 405, allowed);
    if (strcmp(out.allow, allowed) == 0)
        return;
    printf("  UNEXPECTED: the header has \"Allow: %s\"\n", out.allow);
    all_is_well = false;
}

/* None of these reaches a device. */
static void see_refusals(void)
{
    static const char *const wrong[] = {"no JSON",
                                        "{\"n\":4294967297,\"a\":1,\"b\":1}",
                                        "{\"n\":8193,\"a\":1,\"b\":1}",
                                        "{\"n\":1,\"a\":1e300,\"b\":1}",
                                        "{\"n\":1,\"a\":1,\"b\":-1e39}",
                                        "{\"n\":1,\"a\":1,\"b\":1}junk"};
    static const char hidden[] = "{\"n\":1,\"a\":1,\"b\":1}\0junk";
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        expect(show("/alpha/multiply", wrong[i]), 400, "expected");
    expect(ask_with("POST", "/alpha/multiply", hidden, sizeof hidden - 1), 400, "expected");
    expect(show("/nothing", NULL), 404, "expected");
    expect(show("/alpha/nothing", ""), 404, "expected");
    expect_not_allowed("DELETE", "/stats", "GET, HEAD");
    expect_not_allowed("TRACE", "/stats", "GET, HEAD");
    expect_not_allowed("POST", "/stats", "GET, HEAD");
    expect_not_allowed("GET", "/alpha/multiply", "POST");
}

static int talk(void)
{
    all_is_well = true;
    const reply before = show("/stats", NULL);
    expect(before, 200, "\"stopped\": \"no\"");
    expect(show("/alpha/multiply", "{\"n\":64,\"a\":0.5,\"b\":2}"), 200, "64.0");
    expect(show("/alpha/multiply", "{\"n\":2,\"a\":1e38,\"b\":1e38}"), 422, "not finite");
    see_refusals();
    printf("\nmore than alpha's budget, not more than beta's:\n");
    expect(show("/alpha/multiply", "{\"n\":512,\"a\":0.5,\"b\":2}"), 507, "OUT_OF_BUDGET");
    expect(show("/beta/multiply", "{\"n\":512,\"a\":0.5,\"b\":2}"), 200, "512.0");
    printf("\n");
    fill_the_queue();
    see_a_fault(strstr(before.body, "\"form\": \"isolated\"") != NULL);
    printf("\n%s\n", all_is_well ? "The server did what it should." : "The server did something else.");
    return all_is_well ? EXIT_SUCCESS : EXIT_FAILURE;
}

/* ---- a server of the client's own ---- */

/* Starts example_server beside this program; *line: its stdout. 0: it could not be started. */
static pid_t start_server(const char *form, FILE **line)
{
    char path[PATH_MAX];
    int ends[2];
    pid_t child = 0;
    posix_spawn_file_actions_t actions;
    const ssize_t length = readlink("/proc/self/exe", path, sizeof path - 1);
    if (length <= 0 || pipe(ends) != 0)
        return 0;
    path[length] = '\0';
    path[length - (ssize_t)strlen("_client")] = '\0';
    char *const arguments[] = {path, "--queue", "8", "--form", (char *)(uintptr_t)form, NULL};
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, ends[1], STDOUT_FILENO);
    posix_spawn_file_actions_addclose(&actions, ends[0]);
    posix_spawn_file_actions_addclose(&actions, ends[1]);
    if (posix_spawn(&child, path, &actions, NULL, arguments, environ) != 0)
        child = 0;
    posix_spawn_file_actions_destroy(&actions);
    close(ends[1]);
    *line = fdopen(ends[0], "r");
    if (!child)
        fprintf(stderr, "%s could not be started\n", path);
    return child;
}

static int end_server(pid_t child, int status)
{
    int ended;
    kill(child, SIGTERM);
    if (waitpid(child, &ended, 0) == child && WIFEXITED(ended) && WEXITSTATUS(ended) == 0)
        return status;
    fprintf(stderr, "the server did not end well\n");
    return EXIT_FAILURE;
}

static int start_and_talk(const char *form)
{
    FILE *line = NULL;
    int ended = 0, status;
    own_server = true;
    const pid_t child = start_server(form, &line);
    if (child && line && fscanf(line, "listening on port %d", &port) == 1) {
        printf("the server listens on port %d, with services of the form %s\n\n", port, form);
        status = end_server(child, talk());
    } else {
        if (child)
            waitpid(child, &ended, 0); /* it has said why */
        status = WIFEXITED(ended) && WEXITSTATUS(ended) == SKIPPED ? SKIPPED : EXIT_FAILURE;
    }
    if (line)
        fclose(line);
    return status;
}

int main(int argc, char **argv)
{
    const char *form = "process";
    if (argc == 3 && strcmp(argv[1], "--port") == 0) {
        port = (int)strtol(argv[2], NULL, 10);
        return talk();
    }
    if (argc == 3 && strcmp(argv[1], "--form") == 0)
        form = argv[2];
    else if (argc != 1) {
        fprintf(stderr, "usage: example_server_client [--port N | --form process|isolated]\n");
        return 2;
    }
    return start_and_talk(form);
}
