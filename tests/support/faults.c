/*
 * Loaded before the C library: from a certain call on, what SQLite asks of the operating system fails once or for ever.
 * Counts reads, writes, syncs, changes of size and allocations that libsqlite3 makes itself.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#include <unistd.h>

enum { READ, WRITE, SYNC, SIZE, MEMORY, KINDS };

static long calls[KINDS], fails_at[KINDS];
static int for_ever, half, on;
static char *first, *last; /* where libsqlite3 lies */

void faults_begin(int kind, long at, int ever, int cut, char *begin, char *end)
{
	memset(calls, 0, sizeof(calls));
	memset(fails_at, 0, sizeof(fails_at));
	if (kind >= 0)
		fails_at[kind] = at;
	for_ever = ever;
	half = cut;
	first = begin;
	last = end;
	on = 1;
}

long faults_end(int kind)
{
	on = 0;
	return calls[kind];
}

static int fails(int kind, void *from)
{
	if (!on || (char *)from < first || (char *)from >= last)
		return 0;
	calls[kind]++;
	return fails_at[kind] && (calls[kind] == fails_at[kind] || (for_ever && calls[kind] > fails_at[kind]));
}

#define REAL(name) \
	static __typeof__(&name) real; \
	if (!real) \
		real = (__typeof__(&name))dlsym(RTLD_NEXT, #name)
#define FROM __builtin_return_address(0)

#define READS(name, offset_t) \
	ssize_t name(int fd, void *to, size_t size, offset_t at) \
	{ \
		REAL(name); \
		if (fails(READ, FROM)) { \
			errno = EIO; \
			return -1; \
		} \
		return real(fd, to, size, at); \
	}
READS(pread, off_t)
READS(pread64, off64_t)

/* A full disk may take a part before it refuses the rest. */
#define WRITES(name, offset_t) \
	ssize_t name(int fd, const void *from, size_t size, offset_t at) \
	{ \
		REAL(name); \
		if (fails(WRITE, FROM)) { \
			if (half && size > 1) \
				real(fd, from, size / 2, at); \
			errno = half ? ENOSPC : EIO; \
			return -1; \
		} \
		return real(fd, from, size, at); \
	}
WRITES(pwrite, off_t)
WRITES(pwrite64, off64_t)

#define SYNCS(name) \
	int name(int fd) \
	{ \
		REAL(name); \
		if (fails(SYNC, FROM)) { \
			errno = EIO; \
			return -1; \
		} \
		return real(fd); \
	}
SYNCS(fsync)
SYNCS(fdatasync)

#define SIZES(name, offset_t) \
	int name(int fd, offset_t size) \
	{ \
		REAL(name); \
		if (fails(SIZE, FROM)) { \
			errno = EIO; \
			return -1; \
		} \
		return real(fd, size); \
	}
SIZES(ftruncate, off_t)
SIZES(ftruncate64, off64_t)

extern void *__libc_malloc(size_t);
extern void *__libc_realloc(void *, size_t);

void *malloc(size_t size)
{
	return fails(MEMORY, FROM) ? NULL : __libc_malloc(size);
}

void *realloc(void *there, size_t size)
{
	return fails(MEMORY, FROM) ? NULL : __libc_realloc(there, size);
}
