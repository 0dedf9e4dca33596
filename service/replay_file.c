/* Reading a recording: each line by itself, and what lines say of each other. */
#include "service/replay_file.h"

#include "core/base/error.h"
#include "core/base/host_memory.h"
#include "core/base/size_text.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* ---- the bytes ---- */

static strata_status fail_read(const char *path, int error)
{
    char room[128];
    return strata_fail(STRATA_ERROR_IO, "the recording %.300s could not be read: %s", path,
                       strerror_r(error, room, sizeof room));
}

static strata_status read_bytes(replay_file *file, const char *path, int descriptor, size_t bytes)
{
    file->text = strata_host_zalloc(bytes + 1);
    if (!file->text)
        return strata_fail_host_memory("a recording");
    while (file->bytes < bytes) {
        const ssize_t count = read(descriptor, file->text + file->bytes, bytes - file->bytes);
        if (count == 0)
            break;
        if (count < 0 && errno != EINTR)
            return fail_read(path, errno);
        file->bytes += count > 0 ? (size_t)count : 0;
    }
    return STRATA_SUCCESS;
}

static strata_status read_file(replay_file *file, const char *path)
{
    struct stat is;
    const int descriptor = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
    if (descriptor < 0)
        return fail_read(path, errno);
    strata_status status;
    if (fstat(descriptor, &is) != 0)
        status = fail_read(path, errno);
    else if (!S_ISREG(is.st_mode))
        status = strata_fail(STRATA_ERROR_IO, "the recording %.300s is not a regular file", path);
    else if (is.st_size > RECORDING_FILE_LIMIT)
        status = strata_fail(STRATA_ERROR_IO, "the recording %.300s has %s; at most %s are read", path,
                             strata_size_text((size_t)is.st_size).text, strata_size_text(RECORDING_FILE_LIMIT).text);
    else
        status = read_bytes(file, path, descriptor, (size_t)is.st_size);
    close(descriptor);
    return status;
}

/* ---- lines ---- */

static void cut_off_last(replay_file *file)
{
    const size_t all = file->bytes;
    while (file->bytes && file->text[file->bytes - 1] != '\n')
        file->bytes--;
    file->truncated = file->bytes < all;
    for (size_t i = 0; i < file->bytes; i++)
        file->lines += file->text[i] == '\n';
}

bool replay_file_next(const replay_file *file, replay_position *position, const char **line, size_t *length)
{
    if (position->at == file->bytes)
        return false;
    *line = file->text + position->at;
    *length = (size_t)((const char *)memchr(*line, '\n', file->bytes - position->at) - *line);
    position->at += *length + 1;
    position->line++;
    return true;
}

/* ---- what lines say of each other ---- */

static bool refuse_number(recording_problem *problem, const char *what, uint64_t number, uint64_t count)
{
    snprintf(problem->text, sizeof problem->text, "%s %" PRIu64 " is not there: %" PRIu64 " were made before", what,
             number, count);
    return false;
}

static bool check_next(recording_problem *problem, const char *what, uint64_t number, uint64_t count)
{
    if (number == count + 1)
        return true;
    snprintf(problem->text, sizeof problem->text, "%s has number %" PRIu64 "; the next is %" PRIu64, what, number,
             count + 1);
    return false;
}

static bool check_ref(replay_file *file, const recorded_ref *ref, uint64_t line, recording_problem *problem)
{
    if (!ref->number)
        return true;
    if (ref->number > file->allocation_count)
        return refuse_number(problem, "allocation", ref->number, file->allocation_count);
    replay_allocation *allocation = &file->allocations[ref->number - 1];
    allocation->last_line = line;
    if (ref->offset <= allocation->bytes && ref->bytes <= allocation->bytes - ref->offset)
        return true;
    snprintf(problem->text, sizeof problem->text,
             "a reference of %zu bytes at %zu exceeds allocation %" PRIu64 ", which has %zu", ref->bytes, ref->offset,
             ref->number, allocation->bytes);
    return false;
}

/* A graph's requests stand before its end, and those of no other one in between. */
static bool check_graph(replay_file *file, const recorded_request *request, uint64_t line, recording_problem *problem)
{
    if (request->into && !check_next(problem, "a graph that is recorded", request->into, file->graph_count))
        return false;
    if (request->kind == SERVICE_PLAY_GRAPH && request->number > file->graph_count)
        return refuse_number(problem, "graph", request->number, file->graph_count);
    if (request->kind == SERVICE_PLAY_GRAPH && request->number)
        file->graphs[request->number - 1].last_line = line;
    if (request->kind != SERVICE_MAKE_GRAPH)
        return true;
    if (!check_next(problem, "a graph", request->number, file->graph_count))
        return false;
    file->graph_count++;
    return true;
}

static bool check_request(replay_file *file, const recorded_request *request, uint64_t line, recording_problem *problem)
{
    if (request->kind == SERVICE_ALLOCATE) {
        if (!check_next(problem, "an allocation", request->number, file->allocation_count))
            return false;
        file->allocations[file->allocation_count++].bytes = request->made.bytes;
    }
    if (request->kind == SERVICE_LOAD) {
        if (!check_next(problem, "a module", request->number, file->module_count))
            return false;
        file->module_count++;
    }
    if (request->kind == SERVICE_LAUNCH && request->number > file->module_count)
        return refuse_number(problem, "module", request->number, file->module_count);
    if (!check_graph(file, request, line, problem))
        return false;
    bool fine = true;
    for (size_t i = 0; i < request->ref_count && fine; i++)
        fine = check_ref(file, &request->refs[i], line, problem);
    return fine;
}

static strata_status fail_line(const char *path, uint64_t line, const recording_problem *problem)
{
    return strata_fail(STRATA_ERROR_SYNTAX, "the recording %.150s, line %" PRIu64 ": %s", path, line, problem->text);
}

static strata_status check_lines(replay_file *file, const char *path, recorded_request *request)
{
    replay_position position = {0};
    recording_problem problem = {"this is no recording, or of another version; the first line must be the head"};
    const char *line;
    size_t length;
    uint64_t time = 0;
    if (!replay_file_next(file, &position, &line, &length) || length != strlen(service_recording_head) ||
        memcmp(line, service_recording_head, length) != 0)
        return fail_line(path, 1, &problem);
    while (replay_file_next(file, &position, &line, &length)) {
        if (!recording_line_read(line, length, request, &problem) ||
            !check_request(file, request, position.line, &problem))
            return fail_line(path, position.line, &problem);
        if (request->time < time) {
            snprintf(problem.text, sizeof problem.text, "time %" PRIu64 " is before that of the line above, %" PRIu64,
                     request->time, time);
            return fail_line(path, position.line, &problem);
        }
        time = request->time;
    }
    return STRATA_SUCCESS;
}

/* Each line makes one allocation, module or graph at most. */
static strata_status make_room(replay_file *file)
{
    file->allocations = strata_host_zalloc((file->lines + 1) * sizeof *file->allocations);
    file->modules = strata_host_zalloc((file->lines + 1) * sizeof *file->modules);
    file->graphs = strata_host_zalloc((file->lines + 1) * sizeof *file->graphs);
    return file->allocations && file->modules && file->graphs ? STRATA_SUCCESS : strata_fail_host_memory("a recording");
}

strata_status replay_file_open(replay_file *file, const char *path)
{
    *file = (replay_file){0};
    strata_status status = read_file(file, path);
    if (status == STRATA_SUCCESS) {
        cut_off_last(file);
        status = make_room(file);
    }
    recorded_request *request = status == STRATA_SUCCESS ? strata_host_zalloc(sizeof *request) : NULL;
    if (request)
        status = check_lines(file, path, request);
    else if (status == STRATA_SUCCESS)
        status = strata_fail_host_memory("a recording");
    strata_host_free(request);
    if (status != STRATA_SUCCESS)
        replay_file_close(file);
    return status;
}

void replay_file_close(replay_file *file)
{
    strata_host_free(file->text);
    strata_host_free(file->allocations);
    strata_host_free(file->modules);
    strata_host_free(file->graphs);
    *file = (replay_file){0};
}
