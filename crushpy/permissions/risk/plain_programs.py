"""Programs that take orders from their words alone: not from variables, not from files of their folder."""

from crushpy.permissions.shell.ast import word_set

PLAIN_PROGRAMS = word_set(
    "ls cat head tail wc grep egrep fgrep rg echo pwd which type stat du df tree diff cmp sort uniq cut tr nl"
    " basename dirname realpath readlink date whoami id uname hostname seq sleep printf true false test [ :"
    " find fd fdfind sed awk gawk mawk column md5sum sha1sum sha256sum sha512sum od xxd hexdump strings file"
    " jq tac rev fold comm paste join expr mkdir touch cp mv rm rmdir ln chmod tee break continue return"
    " exit shift wait set read cd"
)
