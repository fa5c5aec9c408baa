/*
 * The target of benchmarks.stress: memory of every kind, of which it is known what is touched and what never is, while
 * everything that can exchange or free page tables works on the same address space.
 *
 * stress COUNTER_FD: prints one line of JSON with its ranges, then works until it is sent SIGTERM, looks whether its
 * memory holds what it wrote, and prints a second line. The first word of the file counts the rounds of the toucher.
 *
 * stress PID ADDRESS: has the kernel make huge pages in the memory of that process until it is killed.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <linux/perf_event.h>
#include <linux/userfaultfd.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <spawn.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#ifndef MADV_COLLAPSE
#define MADV_COLLAPSE 25
#endif
#define PAGE 4096UL
#define HUGE_PAGE (2UL << 20)
#define FEW 4096UL /* pages */
#define STEP 64UL
#define PATTERN 0x5a17c0de5a17c0deULL

static char *plain, *never, *thp, *cold_thp, *collapsing, *faulted, *locked, *hugetlb;
static volatile sig_atomic_t ending;
static _Atomic uint64_t *rounds;
static int uffd = -1;
static char stacks[2][1 << 16] __attribute__((aligned(16)));

static char *map(unsigned long bytes, int advice)
{
	char *memory = mmap(NULL, bytes + HUGE_PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (memory == MAP_FAILED)
		exit(3);
	memory = (char *)(((uintptr_t)memory + HUGE_PAGE - 1) & ~(HUGE_PAGE - 1));
	madvise(memory, bytes, advice);
	return memory;
}

static void fill(char *memory, unsigned long pages)
{
	for (unsigned long n = 0; n < pages; n++)
		*(uint64_t *)(memory + n * PAGE) = PATTERN ^ n;
}

/* Pages that differ from what was filled in, but for every `step`-th (0: none), of which the toucher has its counts. */
static unsigned long damaged(const char *memory, unsigned long pages, unsigned long step, uint64_t count)
{
	unsigned long wrong = 0;

	for (unsigned long n = 0; n < pages; n++) {
		uint64_t expected = (PATTERN ^ n) + (step && n % step == 0 ? count : 0);

		wrong += *(const uint64_t *)(memory + n * PAGE) != expected;
	}
	return wrong;
}

/* Another process in the same memory: maps, touches, moves and unmaps, so that page tables come and go. */
static int share(void *seed)
{
	unsigned int state = (unsigned int)(uintptr_t)seed;

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	for (;;) {
		unsigned long bytes = (1 + rand_r(&state) % 16) * HUGE_PAGE, at;
		char *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0), *moved;

		if (memory == MAP_FAILED)
			continue;
		madvise(memory, bytes, rand_r(&state) & 1 ? MADV_HUGEPAGE : MADV_NOHUGEPAGE);
		for (at = 0; at < bytes; at += 16 * PAGE)
			memory[at] = 1;
		if (rand_r(&state) & 1)
			madvise(memory, bytes, MADV_COLLAPSE);
		if (rand_r(&state) & 1)
			madvise(memory, bytes, MADV_DONTNEED);
		moved = mremap(memory, bytes, bytes * 2, MREMAP_MAYMOVE);
		munmap(moved == MAP_FAILED ? memory : moved, moved == MAP_FAILED ? bytes : bytes * 2);
	}
	return 0;
}

static void *answer_faults(void *unused)
{
	static char source[PAGE] __attribute__((aligned(4096)));
	struct uffd_msg message;

	*(uint64_t *)source = PATTERN;
	while (read(uffd, &message, sizeof(message)) == sizeof(message)) {
		struct uffdio_copy copy = {
			.dst = message.arg.pagefault.address & ~(PAGE - 1), .src = (uintptr_t)source, .len = PAGE,
		};

		if (message.event == UFFD_EVENT_PAGEFAULT)
			ioctl(uffd, UFFDIO_COPY, &copy);
	}
	return unused;
}

static void register_faults(void)
{
	struct uffdio_api api = { .api = UFFD_API };
	struct uffdio_register range = {
		.range = { (uintptr_t)faulted, FEW * PAGE }, .mode = UFFDIO_REGISTER_MODE_MISSING,
	};
	pthread_t thread;

	uffd = syscall(SYS_userfaultfd, O_CLOEXEC);
	if (uffd < 0 || ioctl(uffd, UFFDIO_API, &api) || ioctl(uffd, UFFDIO_REGISTER, &range)) {
		faulted = NULL;
		return;
	}
	pthread_create(&thread, NULL, answer_faults, NULL);
}

/* Huge pages are made of small ones and taken apart again. */
static void *collapse(void *unused)
{
	for (unsigned int n = 0;; n++) {
		char *block = collapsing + n % 16 * HUGE_PAGE;

		madvise(block, HUGE_PAGE, MADV_COLLAPSE);
		usleep(2000);
		mprotect(block + 9 * PAGE, PAGE, PROT_READ); /* splits the mapping, and with it the huge page's */
		mprotect(block + 9 * PAGE, PAGE, PROT_READ | PROT_WRITE);
		if (n % 3 == 0)
			madvise(block + HUGE_PAGE / 2, HUGE_PAGE / 2, MADV_DONTNEED);
		for (unsigned long at = HUGE_PAGE / 2; at < HUGE_PAGE; at += PAGE)
			block[at] = 1;
	}
	return unused;
}

static void *start_children(void *unused)
{
	extern char **environ;
	char *words[] = { "true", NULL };
	pid_t child;

	for (;;) {
		usleep(200000);
		if (!posix_spawn(&child, "/bin/true", NULL, NULL, words, environ)) /* vfork */
			waitpid(child, NULL, 0);
		child = fork();
		if (!child)
			_exit(plain[0]);
		if (child > 0)
			waitpid(child, NULL, 0);
	}
	return unused;
}

static void end(int number)
{
	(void)number;
	ending = 1;
}

static void touch_once(uint64_t round)
{
	struct timespec now;

	for (unsigned long n = 0; n < FEW; n += STEP)
		++*(volatile uint64_t *)(plain + n * PAGE);
	for (unsigned long n = 0; n < FEW; n += STEP)
		++*(volatile uint64_t *)(locked + n * PAGE);
	for (unsigned long n = 0; n < 16; n++) {
		++*(volatile uint64_t *)(thp + n * HUGE_PAGE);
		++*(volatile uint64_t *)(collapsing + n * HUGE_PAGE);
	}
	if (faulted) {
		for (unsigned long n = 0; n < FEW; n += STEP)
			(void)*(volatile uint64_t *)(faulted + n * PAGE);
		if (round % 512 == 0)
			madvise(faulted, FEW * PAGE, MADV_DONTNEED);
	}
	if (hugetlb)
		++*(volatile uint64_t *)hugetlb;
	clock_gettime(CLOCK_MONOTONIC, &now); /* vvar: mapped by page frame number */
}

static int collapse_from_outside(pid_t pid, uintptr_t address)
{
	int pidfd = syscall(SYS_pidfd_open, pid, 0);

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	for (unsigned int n = 0;; n++) {
		struct iovec block = { (void *)(address + n % 16 * HUGE_PAGE), HUGE_PAGE };

		syscall(SYS_process_madvise, pidfd, &block, 1UL, MADV_COLLAPSE, 0);
		usleep(5000);
	}
	return 0;
}

int main(int count, char **words)
{
	struct perf_event_attr event = { .type = PERF_TYPE_SOFTWARE, .size = sizeof(event), .config = PERF_COUNT_SW_DUMMY };
	pthread_t thread;
	int inside, outside, perf;

	if (count > 2)
		return collapse_from_outside(atoi(words[1]), strtoul(words[2], NULL, 10));
	rounds = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, count > 1 ? atoi(words[1]) : -1, 0);
	if (rounds == MAP_FAILED)
		return 2;
	signal(SIGTERM, end);
	plain = map(FEW * PAGE, MADV_NOHUGEPAGE);
	never = map(FEW * PAGE, MADV_NOHUGEPAGE);
	locked = map(FEW * PAGE, MADV_NOHUGEPAGE);
	faulted = map(FEW * PAGE, MADV_NOHUGEPAGE);
	thp = map(16 * HUGE_PAGE, MADV_HUGEPAGE);
	cold_thp = map(16 * HUGE_PAGE, MADV_HUGEPAGE);
	collapsing = map(16 * HUGE_PAGE, MADV_HUGEPAGE);
	hugetlb = mmap(NULL, HUGE_PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_HUGETLB, -1, 0);
	if (hugetlb == MAP_FAILED)
		hugetlb = NULL;
	fill(plain, FEW);
	fill(never, FEW);
	fill(locked, FEW);
	if (mlock(locked, FEW * PAGE))
		perror("mlock");
	memset(thp, 0, 16 * HUGE_PAGE);
	memset(cold_thp, 1, 16 * HUGE_PAGE);
	memset(collapsing, 1, 16 * HUGE_PAGE);
	perf = syscall(SYS_perf_event_open, &event, 0, -1, -1, 0);
	if (perf >= 0)
		mmap(NULL, 9 * PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, perf, 0);
	register_faults();
	inside = clone(share, stacks[0] + sizeof(stacks[0]), CLONE_VM | SIGCHLD, (void *)1);
	outside = clone(share, stacks[1] + sizeof(stacks[1]), CLONE_VM | CLONE_PARENT, (void *)2);
	pthread_create(&thread, NULL, collapse, NULL);
	pthread_create(&thread, NULL, start_children, NULL);
	printf("{\"inside\": %d, \"outside\": %d, \"plain\": %lu, \"never\": %lu, \"locked\": %lu, \"faulted\": %lu, "
	       "\"thp\": %lu, \"cold_thp\": %lu, \"collapsing\": %lu, \"hugetlb\": %lu, \"perf\": %d}\n",
	       inside, outside, (unsigned long)plain, (unsigned long)never, (unsigned long)locked,
	       (unsigned long)faulted, (unsigned long)thp, (unsigned long)cold_thp, (unsigned long)collapsing,
	       (unsigned long)hugetlb, perf >= 0);
	fflush(stdout);
	while (!ending) {
		uint64_t done = atomic_load(rounds) + 1;

		touch_once(done);
		atomic_store(rounds, done);
		sched_yield();
	}
	uint64_t done = atomic_load(rounds);
	unsigned long wrong = damaged(plain, FEW, STEP, done) + damaged(locked, FEW, STEP, done) + damaged(never, FEW, 0, 0);

	for (unsigned long n = 0; n < 16; n++)
		wrong += *(uint64_t *)(thp + n * HUGE_PAGE) != done;
	for (unsigned long n = 0; n < 16 * HUGE_PAGE; n++)
		wrong += cold_thp[n] != 1;
	for (unsigned long n = 0; faulted && n < FEW; n += STEP)
		wrong += *(uint64_t *)(faulted + n * PAGE) != PATTERN;
	kill(inside, SIGKILL);
	kill(outside, SIGKILL);
	printf("{\"rounds\": %lu, \"damaged\": %lu}\n", (unsigned long)done, wrong);
	fflush(stdout);
	_exit(wrong ? 1 : 0);
}
