/*
 * Loaded before the C library: from a certain call on, what is asked of the operating system fails once or for ever.
 * Counts reads, writes, syncs, changes of size, files opened, files removed, mappings and allocations that the code
 * between two addresses makes itself: that of libsqlite3, or all of the process.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/types.h>
#include <unistd.h>

enum { READ, WRITE, SYNC, SIZE, MEMORY, OPEN, UNLINK, MAP, KINDS };

static long calls[KINDS], fails_at[KINDS];
static int for_ever, half, on;
static char *first, *last; /* where the code lies whose calls fail */

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

/* As when the process has all the files open that it may. */
#define OPENS(name) \
	int name(const char *path, int flags, ...) \
	{ \
		REAL(name); \
		va_list more; \
		va_start(more, flags); \
		mode_t mode = flags & O_CREAT || (flags & O_TMPFILE) == O_TMPFILE ? va_arg(more, mode_t) : 0; \
		va_end(more); \
		if (fails(OPEN, FROM)) { \
			errno = EMFILE; \
			return -1; \
		} \
		return real(path, flags, mode); \
	}
OPENS(open)
OPENS(open64)

int unlink(const char *path)
{
	REAL(unlink);
	if (fails(UNLINK, FROM)) {
		errno = EIO;
		return -1;
	}
	return real(path);
}

#define MAPS(name, offset_t) \
	void *name(void *there, size_t size, int rights, int flags, int fd, offset_t at) \
	{ \
		REAL(name); \
		if (fails(MAP, FROM)) { \
			errno = ENOMEM; \
			return MAP_FAILED; \
		} \
		return real(there, size, rights, flags, fd, at); \
	}
MAPS(mmap, off_t)
MAPS(mmap64, off64_t)

extern void *__libc_malloc(size_t);
extern void *__libc_calloc(size_t, size_t);
extern void *__libc_realloc(void *, size_t);

void *malloc(size_t size)
{
	return fails(MEMORY, FROM) ? NULL : __libc_malloc(size);
}

void *realloc(void *there, size_t size)
{
	return fails(MEMORY, FROM) ? NULL : __libc_realloc(there, size);
}

void *calloc(size_t count, size_t size)
{
	return fails(MEMORY, FROM) ? NULL : __libc_calloc(count, size);
}
