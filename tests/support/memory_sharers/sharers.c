/*
 * A process whose memory is used by something else than its own threads. It touches one page of 64 of its memory for
 * ever; the sharer (a process made with CLONE_VM, a child of vfork before its exec, a worker thread of io_uring) maps,
 * touches and unmaps memory of its own in the same address space, or waits. Or it touches the pages, and the process
 * waits ("toucher").
 *
 * sharers KIND PAGES: prints "PID-OF-THE-SHARER ADDRESS" once both are on their way.
 */
#define _GNU_SOURCE
#include <linux/io_uring.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#define PAGE 4096UL
#define BUSY_BYTES (64UL << 20)

static char stack[1 << 16] __attribute__((aligned(16)));

static int map_and_unmap(void *unused)
{
	(void)unused;
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	for (;;) {
		char *memory = mmap(NULL, BUSY_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

		if (memory == MAP_FAILED)
			continue;
		madvise(memory, BUSY_BYTES, MADV_NOHUGEPAGE);
		for (unsigned long at = 0; at < BUSY_BYTES; at += 64 * PAGE)
			memory[at] = 1;
		munmap(memory, BUSY_BYTES);
	}
	return 0;
}

static char *touched;
static unsigned long touched_pages;

static void touch_for_ever(volatile char *memory, unsigned long pages)
{
	for (;;)
		for (unsigned long n = 0; n < pages; n += 64)
			memory[n * PAGE]++;
}

static int touch(void *unused)
{
	(void)unused;
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	for (;;) /* all of them: of one in 64, few stay in the TLB beside one another */
		for (unsigned long n = 0; n < touched_pages; n++)
			((volatile char *)touched)[n * PAGE]++;
	return 0;
}

/* A read from a pipe that nobody writes to, made by a worker thread; or a thread that polls for requests. */
static int use_io_uring(int polling)
{
	struct io_uring_params parameters = { .flags = polling ? IORING_SETUP_SQPOLL : 0, .sq_thread_idle = 3600000 };
	int ring = syscall(SYS_io_uring_setup, 4, &parameters), ends[2];
	static char buffer[8];

	if (ring < 0 || pipe(ends))
		return -1;
	if (polling)
		return 0;
	char *queue = mmap(NULL, parameters.sq_off.array + 4 * sizeof(uint32_t), PROT_READ | PROT_WRITE,
			   MAP_SHARED | MAP_POPULATE, ring, IORING_OFF_SQ_RING);
	struct io_uring_sqe *entries = mmap(NULL, 4 * sizeof(*entries), PROT_READ | PROT_WRITE,
					    MAP_SHARED | MAP_POPULATE, ring, IORING_OFF_SQES);

	if (queue == MAP_FAILED || entries == MAP_FAILED)
		return -1;
	memset(entries, 0, sizeof(*entries));
	entries->opcode = IORING_OP_READ;
	entries->flags = IOSQE_ASYNC;
	entries->fd = ends[0];
	entries->addr = (uint64_t)buffer;
	entries->len = sizeof(buffer);
	*(uint32_t *)(queue + parameters.sq_off.array) = 0;
	__atomic_store_n((uint32_t *)(queue + parameters.sq_off.tail), 1, __ATOMIC_RELEASE);
	return syscall(SYS_io_uring_enter, ring, 1, 0, 0, NULL, 0) == 1 ? 0 : -1;
}

int main(int count, char **words)
{
	const char *kind = count > 1 ? words[1] : "";
	unsigned long pages = count > 2 ? strtoul(words[2], NULL, 10) : 4096;
	char *memory = mmap(NULL, pages * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	int sharer = 0;

	if (memory == MAP_FAILED)
		return 1;
	madvise(memory, pages * PAGE, MADV_NOHUGEPAGE);
	memset(memory, 1, pages * PAGE);
	if (!strcmp(kind, "inside"))
		sharer = clone(map_and_unmap, stack + sizeof(stack), CLONE_VM | SIGCHLD, NULL);
	else if (!strcmp(kind, "outside"))
		sharer = clone(map_and_unmap, stack + sizeof(stack), CLONE_VM | CLONE_PARENT, NULL);
	else if (!strcmp(kind, "toucher")) {
		touched = memory;
		touched_pages = pages;
		sharer = clone(touch, stack + sizeof(stack), CLONE_VM | SIGCHLD, NULL);
	} else if (!strcmp(kind, "vfork")) {
		printf("0 %lu\n", (unsigned long)memory);
		fflush(stdout);
		if (!vfork()) {
			prctl(PR_SET_PDEATHSIG, SIGKILL);
			touch_for_ever(memory, pages);
		}
	} else if (!strcmp(kind, "worker") || !strcmp(kind, "polling"))
		sharer = use_io_uring(!strcmp(kind, "polling"));
	else if (strcmp(kind, "none"))
		return 2;
	if (sharer < 0) {
		perror(kind);
		return 3;
	}
	printf("%d %lu\n", sharer, (unsigned long)memory);
	fflush(stdout);
	while (touched)
		pause();
	touch_for_ever(memory, pages);
}
