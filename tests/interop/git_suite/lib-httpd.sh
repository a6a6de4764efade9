# In place of git's lib-httpd.sh: its functions, with our gateway (gateway_httpd.py, which LIB_HTTPD_PATH names) as the web
# server. The part of that file that looks for Apache is left out.

test_set_port LIB_HTTPD_PORT
LIB_HTTPD_MODULE_PATH=/nonexistent
HTTPD_PARA=
TEST_PATH="$TEST_DIRECTORY"/lib-httpd
HTTPD_ROOT_PATH="$PWD"/httpd
HTTPD_DOCUMENT_ROOT_PATH=$HTTPD_ROOT_PATH/www

# The installed git-remote-http may be newer than the scripts: since CVE-2024-50349 it shows the @ of a user's name as %40.
eval "$(sed -n -e 's/"askpass: \$\*"/"askpass: $(echo "$*" | sed s,%40,@,)"/' -e '/^install_script () {$/,$p' \
	"$TEST_DIRECTORY"/lib-httpd.sh)"
