/* A stand-in for libnvidia-ml.so.1, for tests on machines without a GPU. It is never shipped, and says so in its name.
 *
 * All devices follow one power trace, device i at (i + 1) times its height. The average is the mean of the last second
 * and the energy the integral, both exact, so that what a reader makes of them can be checked in closed form.
 *
 *   STANDIN_DEVICES      how many (1)
 *   STANDIN_POWER        steps "seconds:milliwatts,..." from nvmlInit on, each held until the next ("0:250000")
 *   STANDIN_RECORDING    path of what a real GPU said, a line each: "seconds instant_mw average_mw energy_mj"; each holds
 *                        until the next. In place of STANDIN_POWER, for one device
 *   STANDIN_TICK_MS      energy moves only at multiples of this (0: always)
 *   STANDIN_ENERGY_MJ    energy at the start (1000000)
 *   STANDIN_UNSUPPORTED  names of calls that return NOT_SUPPORTED, with commas: instant usage energy limit utilization
 *                        memory memory_v2 processes graphics mps use gpm gpm_sample gpm_metrics mig architecture; "name@1" of device 1 only
 *   STANDIN_DENIED       the same names: NO_PERMISSION
 *   STANDIN_ZERO         the same names, instant and usage: these answer 0
 *   STANDIN_LOST         "index@seconds": that device is lost from then on
 *   STANDIN_NO_HANDLE    index of a device whose handle cannot be had
 *   STANDIN_SLOW_MS      reading power takes so long
 *   STANDIN_HANG         path of a file: while it exists, reading power does not return
 *   STANDIN_HANG_INIT    the same for nvmlInit
 *   STANDIN_INIT         what nvmlInit returns (0)
 *   STANDIN_PROCESSES    compute processes "pid:bytes,...", of every device or "pid@1:bytes" of device 1; bytes "-" for not
 *                        available; "pid:bytes/3" in slice 3 of MIG; or a path, which is read anew for every call
 *   STANDIN_GRAPHICS, STANDIN_MPS   the same for processes that draw, and that compute through MPS
 *   STANDIN_GROW         the compute list is longer by so many with every call (0)
 *   STANDIN_HANG_PROCESSES   path of a file: while it exists, asking for compute processes does not return
 *   STANDIN_USE          use of the last second "pid:percent,...", of every device or "pid@1:percent" of device 1;
 *                        "pid:percent/500" of a sample 500 ms ago; or a path
 *   STANDIN_GPM          0: the board has no counters
 *   STANDIN_METRICS      means of the counters "number:value,...", "-" for not supported (as on an H200 at work)
 *   STANDIN_ARCH, STANDIN_CC   architecture number (9) and compute capability "9.0"
 *   STANDIN_MIG          1: MIG is on
 *   STANDIN_HELD_DOWN    bits of the clocks' event reasons (0)
 *   STANDIN_RESET_S      the energy counter starts anew then
 *
 * standin_set_time(seconds) stops the clock there; without it the clock is the machine's.
 */
#define _GNU_SOURCE
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { OK = 0, UNINITIALIZED = 1, INVALID = 2, NOT_SUPPORTED = 3, DENIED = 4, NOT_FOUND = 6, TOO_SMALL = 7, LOST = 15, VERSION = 25 };
enum { FIELD_ENERGY = 83, FIELD_AVERAGE = 185, FIELD_INSTANT = 186 };
enum { TYPE_UNSIGNED_INT = 1, TYPE_UNSIGNED_LONG_LONG = 3 };

typedef struct { unsigned long long total, free, used; } memory_v1;
typedef struct { unsigned version; unsigned long long total, reserved, free, used; } memory_v2;
typedef struct { unsigned gpu, memory; } utilization;
typedef struct { unsigned pid; unsigned long long used; unsigned gpu_instance, compute_instance; } process_info;
typedef struct {
    uint32_t field, scope;
    int64_t timestamp, latency;
    uint32_t type, status;
    union { double d; unsigned u; unsigned long ul; unsigned long long ull; long long ll; } value;
} field_value;

static int users;
static double started, set_time = -1;
static char handles[64];

void standin_set_time(double seconds) { set_time = seconds; }

static const char *setting(const char *name, const char *otherwise)
{
    const char *value = getenv(name);
    return value && *value ? value : otherwise;
}

static double clock_s(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec + now.tv_nsec / 1e9;
}

static double now_s(void) { return set_time >= 0 ? set_time : clock_s() - started; }

static int listed(const char *list, const char *name)
{
    size_t length = strlen(name);
    for (const char *at = setting(list, ""); *at;) {
        size_t part = strcspn(at, ",");
        if (part == length && strncmp(at, name, length) == 0)
            return 1;
        at += part + (at[part] == ',');
    }
    return 0;
}

static int listed_for(const char *list, const char *name, int index)
{
    char one[64];
    snprintf(one, sizeof one, "%s@%d", name, index);
    return listed(list, name) || listed(list, one);
}

/* Power (mW) at a time and energy (mJ) from 0 to it, from the steps of the trace. */
static double trace(double until, double *energy)
{
    double power = 0, since = 0, total = 0;
    const char *at = setting("STANDIN_POWER", "0:250000");
    while (*at) {
        char *end;
        double from = strtod(at, &end);
        double next = *end == ':' ? strtod(end + 1, &end) : 0;
        if (from > until)
            break;
        total += power * (from - since);
        power = next, since = from;
        at = *end == ',' ? end + 1 : end + strlen(end);
    }
    if (until > since)
        total += power * (until - since);
    if (energy)
        *energy = total;
    return power;
}

typedef struct { double from; unsigned instant, average; unsigned long long energy; } recorded;

/* What a real GPU said at this time; NULL without a recording. */
static const recorded *recording(void)
{
    static recorded rows[1 << 16];
    static size_t count;
    const char *path = setting("STANDIN_RECORDING", "");
    if (!*path)
        return NULL;
    if (!count) {
        FILE *file = fopen(path, "r");
        while (file && count < sizeof rows / sizeof *rows
               && fscanf(file, "%lf %u %u %llu", &rows[count].from, &rows[count].instant, &rows[count].average,
                         &rows[count].energy) == 4)
            count++;
        if (file)
            fclose(file);
    }
    size_t at = 0;
    while (at + 1 < count && rows[at + 1].from <= now_s())
        at++;
    return rows + at;
}

static int device_count(void) { return atoi(setting("STANDIN_DEVICES", "1")); }

static int check(void *handle, const char *name, int *index)
{
    if (!users)
        return UNINITIALIZED;
    *index = (int)((char *)handle - handles);
    if (*index < 0 || *index >= device_count())
        return INVALID;
    int lost;
    double when;
    if (sscanf(setting("STANDIN_LOST", ""), "%d@%lf", &lost, &when) == 2 && lost == *index && now_s() >= when)
        return LOST;
    if (listed_for("STANDIN_DENIED", name, *index))
        return DENIED;
    return listed_for("STANDIN_UNSUPPORTED", name, *index) ? NOT_SUPPORTED : OK;
}

static void hang(const char *name)
{
    const char *path = setting(name, "");
    while (*path && access(path, F_OK) == 0)
        usleep(20000);
}

static void be_slow(void)
{
    usleep(1000 * atoi(setting("STANDIN_SLOW_MS", "0")));
    hang("STANDIN_HANG");
}

__attribute__((unused)) static unsigned instant_mw(int index)
{
    const recorded *said = recording();
    if (said)
        return said->instant;
    return listed("STANDIN_ZERO", "instant") ? 0 : (unsigned)lround(trace(now_s(), NULL) * (index + 1));
}

static unsigned average_mw(int index)
{
    const recorded *said = recording();
    if (said)
        return said->average;
    double now = now_s(), until, before = 0, from = now > 1 ? now - 1 : 0;
    trace(now, &until);
    trace(from, &before);
    double mean = now > from ? (until - before) / (now - from) : trace(now, NULL);
    return listed("STANDIN_ZERO", "usage") ? 0 : (unsigned)lround(mean * (index + 1));
}

static unsigned long long energy_mj(int index)
{
    const recorded *said = recording();
    if (said)
        return said->energy;
    double tick = atof(setting("STANDIN_TICK_MS", "0")) / 1000, at = now_s(), energy;
    trace(tick > 0 ? floor(at / tick) * tick : at, &energy);
    double reset = atof(setting("STANDIN_RESET_S", "-1"));
    if (reset >= 0 && at >= reset)
        return (unsigned long long)llround(energy * (index + 1));
    return strtoull(setting("STANDIN_ENERGY_MJ", "1000000"), NULL, 10) + (unsigned long long)llround(energy * (index + 1));
}

int nvmlInitWithFlags(unsigned flags)
{
    (void)flags;
    hang("STANDIN_HANG_INIT");
    int result = atoi(setting("STANDIN_INIT", "0"));
    if (result == OK && users++ == 0)
        started = clock_s();
    return result;
}

int nvmlInit_v2(void) { return nvmlInitWithFlags(0); }

int nvmlShutdown(void) { return users > 0 ? (users--, OK) : UNINITIALIZED; }

const char *nvmlErrorString(int result)
{
    static char text[64];
    snprintf(text, sizeof text, "stand-in error %d", result);
    return text;
}

int nvmlDeviceGetCount_v2(unsigned *count)
{
    *count = device_count();
    return users ? OK : UNINITIALIZED;
}

int nvmlDeviceGetHandleByIndex_v2(unsigned index, void **handle)
{
    if (!users)
        return UNINITIALIZED;
    if (index >= (unsigned)device_count() || index >= sizeof handles)
        return INVALID;
    if ((int)index == atoi(setting("STANDIN_NO_HANDLE", "-1")))
        return LOST;
    *handle = handles + index;
    return OK;
}

int nvmlDeviceGetHandleByUUID(const char *uuid, void **handle)
{
    unsigned index;
    return sscanf(uuid, "GPU-stand-in-%u", &index) == 1 ? nvmlDeviceGetHandleByIndex_v2(index, handle) : NOT_FOUND;
}

int nvmlDeviceGetMinorNumber(void *handle, unsigned *minor)
{
    int index, result = check(handle, "minor", &index);
    if (result == OK)
        *minor = 900 + index;
    return result;
}

int nvmlDeviceGetClockInfo(void *handle, unsigned kind, unsigned *mhz)
{
    int index, result = check(handle, "clocks", &index);
    if (result == OK)
        *mhz = kind == 1 ? 1980 : 2619;
    return result;
}

int nvmlDeviceGetTemperature(void *handle, unsigned sensor, unsigned *celsius)
{
    int index, result = check(handle, "temperature", &index);
    if (result == OK)
        *celsius = 45;
    return result;
}

int nvmlDeviceGetCurrentClocksEventReasons(void *handle, unsigned long long *reasons)
{
    int index, result = check(handle, "reasons", &index);
    if (result == OK)
        *reasons = strtoull(setting("STANDIN_HELD_DOWN", "0"), NULL, 0);
    return result;
}

int nvmlDeviceGetName(void *handle, char *name, unsigned length)
{
    int index, result = check(handle, "name", &index);
    if (result == OK)
        snprintf(name, length, "NVML stand-in %d (no hardware)", index);
    return result;
}

int nvmlDeviceGetPowerUsage(void *handle, unsigned *milliwatts)
{
    int index, result = check(handle, "usage", &index);
    be_slow();
    if (result == OK)
        *milliwatts = average_mw(index);
    return result;
}

int nvmlDeviceGetTotalEnergyConsumption(void *handle, unsigned long long *millijoules)
{
    int index, result = check(handle, "energy", &index);
    if (result == OK)
        *millijoules = energy_mj(index);
    return result;
}

int nvmlDeviceGetEnforcedPowerLimit(void *handle, unsigned *milliwatts)
{
    int index, result = check(handle, "limit", &index);
    if (result == OK)
        *milliwatts = 700000;
    return result;
}

#ifndef OLD_DRIVER
int nvmlDeviceGetFieldValues(void *handle, int count, field_value *values)
{
    int index, result = check(handle, "fields", &index);
    if (result != OK)
        return result;
    be_slow();
    for (int i = 0; i < count; i++) {
        field_value *value = values + i;
        value->timestamp = (int64_t)(now_s() * 1e6);
        value->latency = 0;
        value->status = OK;
        value->type = TYPE_UNSIGNED_INT;
        if (value->field == FIELD_INSTANT && value->scope == 0 && !listed("STANDIN_UNSUPPORTED", "instant"))
            value->value.u = instant_mw(index);
        else if (value->field == FIELD_AVERAGE && value->scope == 0)
            value->value.u = average_mw(index);
        else if (value->field == FIELD_ENERGY && !listed("STANDIN_UNSUPPORTED", "energy")) {
            value->type = TYPE_UNSIGNED_LONG_LONG;
            value->value.ull = energy_mj(index);
        } else
            value->status = NOT_SUPPORTED;
    }
    return OK;
}

int nvmlDeviceGetMemoryInfo_v2(void *handle, memory_v2 *memory)
{
    int index, result = check(handle, "memory_v2", &index);
    if (result == OK && memory->version != (sizeof *memory | 2u << 24))
        result = VERSION;
    if (result == OK)
        *memory = (memory_v2){memory->version, 80ull << 30, 600ull << 20, 0, (unsigned long long)(index + 1) << 30};
    return result;
}
#endif

int nvmlDeviceGetMemoryInfo(void *handle, memory_v1 *memory)
{
    int index, result = check(handle, "memory", &index);
    if (result == OK) /* the first version counts what the driver holds back as used */
        *memory = (memory_v1){80ull << 30, 0, ((unsigned long long)(index + 1) << 30) + (600ull << 20)};
    return result;
}

int nvmlDeviceGetUtilizationRates(void *handle, utilization *rates)
{
    int index, result = check(handle, "utilization", &index);
    if (result == OK)
        *rates = (utilization){75, 40};
    return result;
}

/* The text of a list: the setting itself, or what the file that it names holds now. */
static const char *list_of(const char *variable)
{
    static char text[1 << 16];
    const char *value = setting(variable, "");
    if (*value != '/')
        return value;
    FILE *file = fopen(value, "r");
    size_t length = file ? fread(text, 1, sizeof text - 1, file) : 0;
    if (file)
        fclose(file);
    text[length] = 0;
    return text;
}

/* As the driver does it: the count says how much room there is, and comes back as how many there are. */
static int list(int index, const char *variable, unsigned more, unsigned *count, process_info *processes)
{
    unsigned found = 0, room = *count;
    for (const char *at = list_of(variable); *at && *at != '\n'; at += *at == ',') {
        process_info one = {(unsigned)strtoul(at, (char **)&at, 10), ~0ull, ~0u, ~0u};
        int device = *at == '@' ? (int)strtol(at + 1, (char **)&at, 10) : index;
        if (*at == ':' && *++at == '-')
            at++;
        else
            one.used = strtoull(at, (char **)&at, 10);
        if (*at == '/')
            one.gpu_instance = one.compute_instance = (unsigned)strtoul(at + 1, (char **)&at, 10);
        if (device == index && found++ < room)
            processes[found - 1] = one;
    }
    for (unsigned i = 0; i < more; i++)
        if (found++ < room)
            processes[found - 1] = (process_info){900000 + i, 4096, ~0u, ~0u};
    *count = found;
    return found > room ? TOO_SMALL : OK;
}

int nvmlDeviceGetComputeRunningProcesses_v3(void *handle, unsigned *count, process_info *processes)
{
    static unsigned calls;
    int index, result = check(handle, "processes", &index);
    hang("STANDIN_HANG_PROCESSES");
    unsigned more = calls++ * (unsigned)atoi(setting("STANDIN_GROW", "0"));
    return result == OK ? list(index, "STANDIN_PROCESSES", more, count, processes) : result;
}

int nvmlDeviceGetGraphicsRunningProcesses_v3(void *handle, unsigned *count, process_info *processes)
{
    int index, result = check(handle, "graphics", &index);
    return result == OK ? list(index, "STANDIN_GRAPHICS", 0, count, processes) : result;
}

int nvmlDeviceGetMPSComputeRunningProcesses_v3(void *handle, unsigned *count, process_info *processes)
{
    int index, result = check(handle, "mps", &index);
    return result == OK ? list(index, "STANDIN_MPS", 0, count, processes) : result;
}

typedef struct { unsigned pid; unsigned long long timestamp; unsigned sm, memory, encoder, decoder; } process_use;

/* As the driver does it: the count comes back with a place more than it fills, and nobody is "not found". */
int nvmlDeviceGetProcessUtilization(void *handle, process_use *uses, unsigned *count, unsigned long long since)
{
    int index, result = check(handle, "use", &index);
    if (result != OK)
        return result;
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    unsigned long long now_us = now.tv_sec * 1000000ull + now.tv_nsec / 1000;
    unsigned found = 0, room = uses ? *count : 0;
    for (const char *at = list_of("STANDIN_USE"); *at && *at != '\n'; at += *at == ',') {
        process_use one = {(unsigned)strtoul(at, (char **)&at, 10), now_us, 0, 11, 0, 0};
        int device = *at == '@' ? (int)strtol(at + 1, (char **)&at, 10) : index;
        one.sm = (unsigned)strtoul(at + 1, (char **)&at, 10);
        if (*at == '/')
            one.timestamp -= 1000 * strtoull(at + 1, (char **)&at, 10);
        if (device == index && one.timestamp > since && found++ < room)
            uses[found - 1] = one;
    }
    *count = found + 1;
    if (found == 0)
        return NOT_FOUND;
    if (found >= room)
        return TOO_SMALL;
    memset(uses + found, 0, sizeof *uses);
    return OK;
}

typedef struct { unsigned version, supported; } gpm_support;
typedef struct { int index; double taken; } gpm_sample;
typedef struct {
    unsigned number;
    int status;
    double value;
    const char *short_name, *long_name, *unit;
} gpm_metric;
typedef struct { unsigned version, count; gpm_sample *first, *second; gpm_metric metrics[]; } gpm_request;

static int live_samples;

int standin_live_samples(void) { return live_samples; }

#ifndef OLD_DRIVER
int nvmlGpmQueryDeviceSupport(void *handle, gpm_support *support)
{
    int index, result = check(handle, "gpm", &index);
    if (result == OK && support->version != 1)
        result = VERSION;
    if (result == OK)
        support->supported = atoi(setting("STANDIN_GPM", "1"));
    return result;
}

int nvmlGpmSampleAlloc(gpm_sample **sample)
{
    live_samples++;
    *sample = calloc(1, sizeof **sample);
    return *sample ? OK : INVALID;
}

int nvmlGpmSampleFree(gpm_sample *sample)
{
    live_samples--;
    free(sample);
    return OK;
}

int nvmlGpmSampleGet(void *handle, gpm_sample *sample)
{
    int index, result = check(handle, "gpm_sample", &index);
    if (result == OK)
        *sample = (gpm_sample){index, now_s()};
    return result;
}

int nvmlGpmMetricsGet(gpm_request *request)
{
    gpm_sample *first = request->first, *second = request->second;
    if (request->version != 1)
        return VERSION;
    if (first->index != second->index || first->taken >= second->taken)
        return INVALID;
    if (listed_for("STANDIN_UNSUPPORTED", "gpm_metrics", first->index))
        return NOT_SUPPORTED;
    const char *busy = "2:94.5,3:14,5:91.75,10:15.5,20:1,21:2.5,60:0,61:0";
    for (unsigned i = 0; i < request->count; i++) {
        gpm_metric *metric = request->metrics + i;
        metric->status = NOT_SUPPORTED;
        for (const char *at = setting("STANDIN_METRICS", busy); *at; at += *at == ',') {
            unsigned number = (unsigned)strtoul(at, (char **)&at, 10);
            int known = strcspn(++at, ",") != 1 || *at != '-';
            double value = known ? strtod(at, (char **)&at) : (at++, 0);
            if (number == metric->number && known)
                metric->status = OK, metric->value = value;
        }
    }
    return OK;
}
#endif

int nvmlDeviceGetMigMode(void *handle, unsigned *current, unsigned *pending)
{
    int index, result = check(handle, "mig", &index);
    if (result == OK)
        *current = *pending = atoi(setting("STANDIN_MIG", "0"));
    return result;
}

int nvmlDeviceGetArchitecture(void *handle, unsigned *architecture)
{
    int index, result = check(handle, "architecture", &index);
    if (result == OK)
        *architecture = atoi(setting("STANDIN_ARCH", "9"));
    return result;
}

int nvmlDeviceGetCudaComputeCapability(void *handle, int *major, int *minor)
{
    int index, result = check(handle, "capability", &index);
    if (result == OK)
        sscanf(setting("STANDIN_CC", "9.0"), "%d.%d", major, minor);
    return result;
}
