/* An HTTP service for products of matrices, with two tenants. Each has a device service of its own: a budget, so that
 * one tenant's memory is not another's; and a queue of requests, which is bounded.
 *
 *     curl -d '{"n": 64, "a": 0.5, "b": 2}' localhost:PORT/alpha/multiply       {"c": 64.0}
 *     curl -d '' localhost:PORT/alpha/fault                                     a kernel that writes where no memory is
 *     curl localhost:PORT/stats
 *
 * With --form process, the default, the device's context is this process's, and a fault ends it for both tenants: the
 * server goes on and says so. With --form isolated each tenant's context is in a worker process: a fault ends that, and
 * another one takes its place. examples/server_client.c shows both.
 *
 * The server listens on the loopback address alone: it has no users and no passwords. */
#include "server_tenants.h"

#include <arpa/inet.h>
#include <errno.h>
#include <float.h>
#include <jansson.h>
#include <math.h>
#include <microhttpd.h>
#include <netinet/in.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { TENANTS = 2, BODY_LIMIT = 4096, LARGEST = 8192, SKIPPED = 77 };

static tenant tenants[TENANTS] = {{.name = "alpha", .budget = 2 << 20}, {.name = "beta", .budget = 64 << 20}};
static const char *form_name = "process"; /* written once, before the daemon starts */

/* The body so far; libmicrohttpd hands it over in parts. */
typedef struct upload {
    size_t length;
    bool too_long;
    char text[BODY_LIMIT];
} upload;

/* ---- answers ---- */

/* `allowed`: the methods of a path that was asked with another one; else NULL. */
static enum MHD_Result answer_allowing(struct MHD_Connection *connection, unsigned code, const char *allowed,
                                       json_t *body)
{
    char *text = json_dumps(body, 0);
    json_decref(body);
    if (!text)
        return MHD_NO; /* out of memory: the connection is closed */
    struct MHD_Response *response = MHD_create_response_from_buffer(strlen(text), text, MHD_RESPMEM_MUST_FREE);
    if (!response) {
        free(text);
        return MHD_NO;
    }
    MHD_add_response_header(response, MHD_HTTP_HEADER_CONTENT_TYPE, "application/json");
    if (allowed)
        MHD_add_response_header(response, MHD_HTTP_HEADER_ALLOW, allowed);
    if (code == MHD_HTTP_SERVICE_UNAVAILABLE)
        MHD_add_response_header(response, MHD_HTTP_HEADER_RETRY_AFTER, "1");
    const enum MHD_Result result = MHD_queue_response(connection, code, response);
    MHD_destroy_response(response);
    return result;
}

static enum MHD_Result answer(struct MHD_Connection *connection, unsigned code, json_t *body)
{
    return answer_allowing(connection, code, NULL, body);
}

static enum MHD_Result refuse(struct MHD_Connection *connection, unsigned code, const char *why)
{
    return answer(connection, code, json_pack("{ss}", "error", why));
}

/* What a failure means to the client: its own mistake, try later, or give up. */
static unsigned code_of(const outcome *of)
{
    switch (of->status) {
    case STRATA_ERROR_INVALID_VALUE:
        return MHD_HTTP_BAD_REQUEST;
    case STRATA_ERROR_OUT_OF_BUDGET:
    case STRATA_ERROR_OUT_OF_MEMORY:
        return MHD_HTTP_INSUFFICIENT_STORAGE;
    case STRATA_ERROR_QUEUE_FULL: /* too many requests, or a context that is being replaced */
    case STRATA_ERROR_NOT_READY:
    case STRATA_ERROR_STALE:
        return MHD_HTTP_SERVICE_UNAVAILABLE;
    default:
        return MHD_HTTP_INTERNAL_SERVER_ERROR;
    }
}

static enum MHD_Result answer_failure(struct MHD_Connection *connection, const outcome *of)
{
    return answer(connection, code_of(of),
                  json_pack("{ssssss}", "error", of->message, "status", strata_status_name(of->status), "class",
                            strata_failure_class_name(of->failure)));
}

/* ---- what the server does ---- */

/* A product that is asked for. */
typedef struct product {
    uint32_t n;
    float a, b;
} product;

/* A conversion of a number that no float is near is undefined. False for those. */
static bool read_float(double number, float *out)
{
    if (!(fabs(number) <= FLT_MAX))
        return false;
    *out = (float)number;
    return true;
}

/* The whole body: jansson refuses what follows the object, NUL included. False if it is something else. */
static bool read_product(const upload *body, product *out)
{
    json_int_t n = 0; /* 64 bits: the format "i" would cut a number to an int */
    double a = 0, b = 0;
    json_t *request = json_loadb(body->text, body->length, 0, NULL);
    const int wrong = json_unpack(request, "{sI sF sF}", "n", &n, "a", &a, "b", &b);
    json_decref(request);
    if (wrong || n < 1 || n > LARGEST)
        return false;
    out->n = (uint32_t)n;
    return read_float(a, &out->a) && read_float(b, &out->b);
}

static enum MHD_Result multiply(struct MHD_Connection *connection, tenant *for_tenant, const upload *body)
{
    product of;
    float c = 0;
    if (!read_product(body, &of))
        return refuse(connection, MHD_HTTP_BAD_REQUEST,
                      "expected {\"n\": 1 to 8192, \"a\": a number, \"b\": a number}, the numbers finite as floats");
    const outcome done = tenant_multiply(for_tenant, of.n, of.a, of.b, &c);
    if (done.status != STRATA_SUCCESS)
        return answer_failure(connection, &done);
    if (!isfinite(c)) /* JSON has no word for it */
        return refuse(connection, MHD_HTTP_UNPROCESSABLE_CONTENT, "the product is not finite as a float");
    return answer(connection, MHD_HTTP_OK, json_pack("{sf}", "c", (double)c));
}

static enum MHD_Result fault(struct MHD_Connection *connection, tenant *of, const upload *body)
{
    (void)body;
    const outcome done = tenant_fault(of);
    return done.status == STRATA_SUCCESS ? answer(connection, MHD_HTTP_OK, json_object())
                                         : answer_failure(connection, &done);
}

static json_t *stats_of(const tenant *self)
{
    strata_service_stats stats;
    const strata_status stopped = strata_service_stopped(self->service);
    if (strata_service_get_stats(self->service, &stats) != STRATA_SUCCESS)
        return json_null();
    return json_pack("{sI sb ss sI sI sI sI sI sI si}", "budget", (json_int_t)self->budget, "ready", stats.ready,
                     "stopped", stopped == STRATA_SUCCESS ? "no" : strata_status_name(stopped), "generation",
                     (json_int_t)stats.generation, "rebuilds", (json_int_t)stats.rebuilds, "queued",
                     (json_int_t)stats.queued, "in_flight", (json_int_t)stats.in_flight, "done", (json_int_t)stats.done,
                     "failed", (json_int_t)stats.failed, "worker", stats.worker);
}

static enum MHD_Result stats(struct MHD_Connection *connection, tenant *none, const upload *body)
{
    (void)none;
    (void)body;
    json_t *all = json_pack("{ss}", "form", form_name);
    for (size_t i = 0; i < TENANTS; i++)
        json_object_set_new(all, tenants[i].name, stats_of(&tenants[i]));
    return answer(connection, MHD_HTTP_OK, all);
}

/* ---- HTTP ---- */

static void append(upload *to, const char *data, size_t length)
{
    if (to->length + length > BODY_LIMIT) {
        to->too_long = true;
        return;
    }
    memcpy(to->text + to->length, data, length);
    to->length += length;
}

/* "/alpha/multiply": the tenant, and the rest from the second slash. */
static tenant *tenant_in(const char *url, const char **rest)
{
    for (size_t i = 0; i < TENANTS; i++) {
        const size_t length = strlen(tenants[i].name);
        *rest = url + 1 + length;
        if (strncmp(url + 1, tenants[i].name, length) == 0 && **rest == '/')
            return &tenants[i];
    }
    return NULL;
}

/* What the server has. */
static const struct resource {
    const char *path; /* of a tenant: what follows its name */
    bool of_tenant;
    const char *methods[2];
    const char *allowed; /* the same methods, as a header */
    enum MHD_Result (*act)(struct MHD_Connection *connection, tenant *of, const upload *body);
} resources[] = {
    {"/stats", false, {MHD_HTTP_METHOD_GET, MHD_HTTP_METHOD_HEAD}, "GET, HEAD", stats},
    {"/multiply", true, {MHD_HTTP_METHOD_POST}, "POST", multiply},
    {"/fault", true, {MHD_HTTP_METHOD_POST}, "POST", fault},
};

static const struct resource *resource_at(const char *path, bool of_tenant)
{
    for (size_t i = 0; i < sizeof resources / sizeof *resources; i++)
        if (resources[i].of_tenant == of_tenant && strcmp(resources[i].path, path) == 0)
            return &resources[i];
    return NULL;
}

static bool allows(const struct resource *at, const char *method)
{
    for (size_t i = 0; i < 2 && at->methods[i]; i++)
        if (strcmp(at->methods[i], method) == 0)
            return true;
    return false;
}

static enum MHD_Result dispatch(struct MHD_Connection *connection, const char *url, const char *method,
                                const upload *body)
{
    const char *what = "";
    tenant *for_tenant = *url == '/' ? tenant_in(url, &what) : NULL;
    const struct resource *at = resource_at(for_tenant ? what : url, for_tenant != NULL);
    if (body->too_long)
        return refuse(connection, MHD_HTTP_CONTENT_TOO_LARGE, "the body has more than 4096 bytes");
    if (!at)
        return refuse(
            connection, MHD_HTTP_NOT_FOUND,
            "expected GET /stats, POST /TENANT/multiply or POST /TENANT/fault, of the tenants alpha and beta");
    if (!allows(at, method))
        return answer_allowing(connection, MHD_HTTP_METHOD_NOT_ALLOWED, at->allowed,
                               json_pack("{ss+}", "error", "expected ", at->allowed));
    return at->act(connection, for_tenant, body);
}

/* Called with the headers, with each part of the body, and at its end. */
static enum MHD_Result handle(void *data, struct MHD_Connection *connection, const char *url, const char *method,
                              const char *version, const char *part, size_t *part_length, void **state)
{
    (void)data;
    (void)version;
    upload *body = *state;
    if (!body) {
        *state = calloc(1, sizeof *body);
        return *state ? MHD_YES : MHD_NO;
    }
    if (*part_length) {
        append(body, part, *part_length);
        *part_length = 0;
        return MHD_YES;
    }
    return dispatch(connection, url, method, body);
}

static void forget(void *data, struct MHD_Connection *connection, void **state, enum MHD_RequestTerminationCode code)
{
    (void)data;
    (void)connection;
    (void)code;
    free(*state);
    *state = NULL;
}

/* A thread for each connection, so that a request may wait for its answer. */
static struct MHD_Daemon *listen_on(uint16_t port)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(port)};
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    return MHD_start_daemon(MHD_USE_THREAD_PER_CONNECTION | MHD_USE_INTERNAL_POLLING_THREAD | MHD_USE_ERROR_LOG, port,
                            NULL, NULL, handle, NULL, MHD_OPTION_SOCK_ADDR, &address, MHD_OPTION_NOTIFY_COMPLETED,
                            forget, NULL, MHD_OPTION_CONNECTION_LIMIT, 128u, MHD_OPTION_CONNECTION_TIMEOUT, 60u,
                            MHD_OPTION_END);
}

/* ---- the program ---- */

static int usage(void)
{
    fprintf(stderr, "usage: example_server [--port N] [--form process|isolated] [--queue N]\n\n"
                    "--port 0, the default, takes a free one, which is printed. --queue: requests of a tenant that may "
                    "wait, 1 to 1000000; default: 64.\n");
    return 2;
}

static bool read_number(const char *text, unsigned long least, unsigned long most, unsigned long *out)
{
    char *end;
    errno = 0;
    *out = strtoul(text, &end, 10);
    return *text >= '0' && *text <= '9' && !*end && !errno && *out >= least && *out <= most;
}

static bool open_tenants(strata_service_form form, uint32_t queue, outcome *why)
{
    for (size_t i = 0; i < TENANTS; i++)
        if (!tenant_open(&tenants[i], form, queue, why)) {
            fprintf(stderr, "example_server: %s\n", why->message);
            return false;
        }
    return true;
}

/* Until SIGINT or SIGTERM. */
static int serve(uint16_t port)
{
    int received;
    sigset_t ends;
    sigemptyset(&ends);
    sigaddset(&ends, SIGINT);
    sigaddset(&ends, SIGTERM);
    pthread_sigmask(SIG_BLOCK, &ends, NULL); /* of the daemon's threads, too */
    struct MHD_Daemon *daemon = listen_on(port);
    if (!daemon) {
        fprintf(stderr, "example_server: port %d cannot be listened on\n", port);
        return EXIT_FAILURE;
    }
    printf("listening on port %d, services: %s\n", MHD_get_daemon_info(daemon, MHD_DAEMON_INFO_BIND_PORT)->port,
           form_name);
    fflush(stdout);
    sigwait(&ends, &received);
    MHD_stop_daemon(daemon);
    return EXIT_SUCCESS;
}

int main(int argc, char **argv)
{
    unsigned long port = 0, queue = 64;
    for (int i = 1; i < argc; i += 2) {
        const char *value = i + 1 < argc ? argv[i + 1] : "";
        if (strcmp(argv[i], "--port") == 0 && read_number(value, 0, 65535, &port))
            continue;
        if (strcmp(argv[i], "--queue") == 0 && read_number(value, 1, 1000000, &queue))
            continue;
        if (strcmp(argv[i], "--form") != 0 || (strcmp(value, "process") != 0 && strcmp(value, "isolated") != 0))
            return usage();
        form_name = value;
    }
    outcome why;
    const bool isolated = strcmp(form_name, "isolated") == 0;
    const bool opened =
        open_tenants(isolated ? STRATA_SERVICE_ISOLATED : STRATA_SERVICE_IN_PROCESS, (uint32_t)queue, &why);
    const int status = opened ? serve((uint16_t)port) : why.status == STRATA_ERROR_UNSUPPORTED ? SKIPPED : EXIT_FAILURE;
    for (size_t i = 0; i < TENANTS; i++)
        tenant_close(&tenants[i]);
    return status;
}
