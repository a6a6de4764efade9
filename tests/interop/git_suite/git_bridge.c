/*
 * Linked into git's own programs with -Wl,--wrap: git runs git_bridge.py as a remote helper for repositories that it would
 * reach itself, on this machine or through a daemon of a test. Their names and URLs stay as the test wrote them.
 */
#include "git-compat-util.h"
#include "strvec.h"
#include "remote.h"
#include "transport.h"
#include "bundle.h"
#include "connect.h"

struct transport *__real_transport_get(struct remote *remote, const char *url);
int __real_cmd_clone(int argc, const char **argv, const char *prefix) __attribute__((weak));

/* The helper has the name of the protocol, so that protocol.NAME.allow decides as it does without the bridge. */
static const char *helper_for(const char *url)
{
	if (starts_with(url, "git://127.0.0.1"))
		return "git";
	if (starts_with(url, "file://"))
		return "file";
	return !strstr(url, "::") && url_is_local_not_ssh(url) && !is_bundle(url, 1) ? "file" : NULL;
}

struct transport *__wrap_transport_get(struct remote *remote, const char *url)
{
	const char *of_remote = remote->foreign_vcs;
	const char *address = url ? url : remote->url ? remote->url[0] : NULL;
	struct transport *transport;

	if (getenv("HPSS_BRIDGE") && !of_remote && address)
		remote->foreign_vcs = helper_for(address);
	transport = __real_transport_get(remote, url);
	remote->foreign_vcs = of_remote;
	return transport;
}

static int copies_files(const char **words)
{
	static const char *options[] = { "-l", "-s", "--local", "--shared", "--no-hardlinks" };
	size_t n;

	for (; *words; words++)
		for (n = 0; n < ARRAY_SIZE(options); n++)
			if (!strcmp(*words, options[n]))
				return 1;
	return 0;
}

/* A clone of a path copies its files: it is told not to. Where a test says that it is to (-l, -s), git alone does it. */
int __wrap_cmd_clone(int argc, const char **argv, const char *prefix)
{
	struct strvec words = STRVEC_INIT;

	if (!getenv("HPSS_BRIDGE"))
		return __real_cmd_clone(argc, argv, prefix);
	if (copies_files(argv)) {
		unsetenv("HPSS_BRIDGE");
		return __real_cmd_clone(argc, argv, prefix);
	}
	strvec_push(&words, argv[0]);
	strvec_push(&words, "--no-local");
	strvec_pushv(&words, argv + 1);
	return __real_cmd_clone(argc + 1, words.v, prefix);
}
