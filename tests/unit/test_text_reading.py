"""How numbers, dates, money, units and symbols are said, in Chinese and in English."""

import pytest

from webui.text.clean import clean
from webui.text.numerals import en_cardinal, en_ordinal, en_year, zh_cardinal
from webui.text.pipeline import normalise, prepare

CHINESE = """
2026年 | 二零二六年
1998年到2003年 | 一九九八年到二零零三年
1998-2003年 | 一九九八到二零零三年
98年5月 | 九八年五月
这1000年前的事 | 这一千年前的事
２０２６年１１月 | 二零二六年十一月
2024-05-06 | 二零二四年五月六日
2024/5/6 | 二零二四年五月六日
12/05 | 十二月五日
90后 | 九零后
20世纪90年代 | 二十世纪九十年代
3:30 | 三点三十分
下午2:05 | 下午两点零五分
15:05:30 | 十五点零五分三十秒
３：３０见 | 三点三十分见
3:30pm | 下午三点三十分
8:00 | 八点
比分3:2 | 比分三比二
比分是21:15 | 比分是二十一比十五
16:9 | 十六比九
13812345678 | 幺三八幺二三四五六七八
打010-12345678 | 打零幺零幺二三四五六七八
拨打12345 | 拨打幺二三四五
400-800-8888 | 四零零八零零八八八八
+86 138 1234 5678 | 加八六幺三八幺二三四五六七八
客服10086 | 客服幺零零八六
验证码是1024 | 验证码是幺零二四
007 | 零零七
3.14 | 三点一四
0.5 | 零点五
-5 | 负五
100000 | 十万
1,234,567 | 一百二十三万四千五百六十七
共1,000,好 | 共一千,好
1，234，567 | 一百二十三万四千五百六十七
12345.678 | 一万二千三百四十五点六七八
10001 | 一万零一
100010001 | 一亿零一万零一
20260 | 两万零二百六十
12345678901234567890 | 一二三四五六七八九零一二三四五六七八九零
50% | 百分之五十
50％ | 百分之五十
-3.5% | 负百分之三点五
3%-5% | 百分之三到百分之五
3-5% | 百分之三到百分之五
5‰ | 千分之五
¥12.5 | 十二点五元
￥12.50元 | 十二点五元
$3.50 | 三点五美元
$3亿 | 三亿美元
€20 | 二十欧元
¥2 | 两元
-5°C | 零下五摄氏度
36.5℃ | 三十六点五摄氏度
90°角 | 九十度角
10km | 十公里
2kg | 两千克
10km/h | 每小时十公里
速度80-120km/h | 速度每小时八十到一百二十公里
时速120km/h | 时速一百二十公里
2008.08.08 | 二零零八年八月八日
自2008.08起 | 自二零零八年八月起
2008.08-2010.10 | 二零零八年八月到二零一零年十月
2010.10万 | 两千零一十点一零万
价格1999.12 | 价格一千九百九十九点一二
8/5/2008 | 二零零八年五月八日
08-2008 | 二零零八年八月
08-08当天 | 八月八日当天
第01-02集 | 第零一到零二集
2024年05月06日 | 二零二四年五月六日
中国1-2 | 中国一比二
中国1-2输给日本 | 中国一比二输给日本
主队以3-1战胜客队 | 主队以三比一战胜客队
中国1-2月出口 | 中国一到二月出口
水温≥30℃ | 水温大于等于三十摄氏度
≤18岁 | 小于等于十八岁
x≤5 | x小于等于五
误差±0.5kg | 误差正负零点五千克
A$13.5 | 十三点五澳元
HK$100 | 一百港元
HKD13.5 | 十三点五港元
NT$300 | 三百新台币
3.5亿USD | 三点五亿美元
-$5 | 负五美元
300w粉丝 | 三百万粉丝
300w+人 | 三百多万人
1.5w+ | 一点五万多
O2O和B2B | O to O和B to B
H2O | H二O
-1.2g | 负一点二克
1/2kg | 二分之一千克
-1/3 | 负三分之一
公元前221年 | 公元前二二一年
打110报警 | 打幺幺零报警
打120分 | 打一百二十分
2個人，3張票 | 两個人，三張票
2萬 | 两萬
90後 | 九零後
電話12345678 | 電話幺二三四五六七八
localhost:8080/api | localhost冒号八零八零斜杠api
192.168.1.1:8080 | 一九二点一六八点一点一冒号八零八零
看kaikou.cn/a?b=1。 | 看kaikou点cn斜杠a问号b等于一。
200㎡ | 两百平方米
5 m² | 五平方米
1/2 | 二分之一
½ | 二分之一
1½ | 一又二分之一
2-3个 | 两到三个
5~10元 | 五到十元
5—10公里 | 五到十公里
2个 | 两个
12个 | 十二个
第2个 | 第二个
2月 | 二月
2年级 | 二年级
我有2万元 | 我有两万元
1+1=2 | 一加一等于二
5-3=2 | 五减三等于二
3×4 | 三乘四
x² | x的平方
10^5 | 十的五次方
1.5e3 | 一点五乘以十的三次方
GPT-4 | GPT-四
ISO9001 | ISO九零零一
5G网络 | 五G网络
v1.2.3 | v一点二点三
192.168.1.1 | 一九二点一六八点一点一
A/B测试 | A B测试
他/她 | 他、她
No.1 | 第一
No.5香水 | 五号香水
会议14:30-16:00开 | 会议十四点三十分到十六点开
38℃~40℃ | 三十八摄氏度到四十摄氏度
约2-3℃ | 约二到三摄氏度
¥5-10元 | 五到十元
$100-$200 | 一百到两百美元
x²+2x+1=0 | x的平方加二x加一等于零
二战(1939-1945)期间 | 二战(一九三九到一九四五)期间
1949年10月1日—2024年10月1日 | 一九四九年十月一日到二零二四年十月一日
电话(010)8888-6666 | 电话零幺零八八八八六六六六
生于'98年 | 生于九八年
500+人 | 五百多人
12306.cn | 一二三零六点cn
#3 | 三号
R&D | R和D
a@b.com | a艾特b点com
看https://www.kaikou.cn/a1/ | 看www点kaikou点cn斜杠a一
气温-5°C，涨了3.5%。 | 气温零下五摄氏度，涨了百分之三点五。
我用iPhone 15 Pro拍照 | 我用iPhone 十五 Pro拍照
他说 I have 3 dogs and 2 cats 然后笑了 | 他说 I have three dogs and two cats 然后笑了
"""

ENGLISH = """
It costs $3.50. | It costs three dollars and fifty cents.
$1 | one dollar
$0.99 | ninety nine cents
$1,000,000 | one million dollars
$5 million | five million dollars
$2.5bn | two point five billion dollars
€20 | twenty euros
£5.99 | five pounds and ninety nine pence
50% | fifty percent
3-5% | three to five percent
3.14 | three point one four
.5 | point five
-5°C | minus five degrees Celsius
1°F | one degree Fahrenheit
3:30 | three thirty
3:05 pm | three oh five P M
8:00 | eight o'clock
at 9 a.m. today | at nine A M today
at 9 a.m. | at nine A M.
12/05 | December fifth
12/05/2024 | December fifth twenty twenty four
25/12/2024 | December twenty fifth twenty twenty four
2024-05-06 | May sixth twenty twenty four
May 5, 2024 | May fifth twenty twenty four
5 May 2024 | fifth of May twenty twenty four
Sept. 3 | September third
in 1999 | in nineteen ninety nine
in 2026 | in twenty twenty six
1990-1995 | nineteen ninety to nineteen ninety five
the 90s | the nineties
the 1990s | the nineteen nineties
1905 | nineteen oh five
1001 | one thousand one
2,500 | two thousand five hundred
007 | zero zero seven
10km | ten kilometers
1 km | one kilometer
60 mph | sixty miles per hour
16GB | sixteen gigabytes
5 m² | five square meters
1/2 | one half
3/4 | three quarters
2/3 | two thirds
1½ cups | one and a half cups
21st | twenty first
2-3 | two to three
5~10 | five to ten
Call 555-1234 | Call five five five, one two three four
(415) 555-0199 | four one five, five five five, zero one nine nine
+1 415 555 0199 | plus one, four one five, five five five, zero one nine nine
A/B test | A B test
R&D | R and D
C++ and C# | C plus plus and C sharp
#1 | number one
1:30-2:00 | one thirty to two o'clock
8 a.m.-5 p.m. today | eight A M to five P M today
Meet me at 2.30 a.m. tomorrow. | Meet me at two thirty A M tomorrow.
9.05am-5.30 p.m. | nine oh five A M to five thirty P M
2.30 | two point three zero
12.5 | twelve point five
It was 19.8 or 20.5. | It was nineteen point eight or twenty point five.
$100-$200 | one hundred to two hundred dollars
between 2010 and 2020. | between twenty ten and twenty twenty.
26.2 mi | twenty six point two miles
Mt. Everest | Mount Everest
24/7 | twenty four seven
No. 5 | number five
1+1=2 | one plus one equals two
3x4 | three by four
x² | x squared
GPT-4 | GPT-four
ISO9001 | ISO nine zero zero one
B2B | B two B
v1.2.3 | v one point two point three
6'2" tall | six foot two tall
Mr. Smith vs. Dr. Jones | Mister Smith versus Doctor Jones
the U.S. army | the U S army
e.g. this | for example this
a@b.com | a at b dot com
see https://www.kaikou.cn/a1/ | see www dot kaikou dot cn slash a one
don’t | don't
10:00:05 a.m. | ten hours zero minutes and five seconds A M
-$6.9 million | minus six point nine million dollars
-12kg | minus twelve kilograms
.5kg | point five kilograms
2-3 °C | two to three degrees Celsius
1.6k followers | one point six thousand followers
4K video | four K video
23 4/5 | twenty three and four fifths
23 4/5th | twenty three and four fifths
23/44 | twenty three forty fourths
1/2 kg | one half of a kilogram
1 1/2 hrs | one and a half hours
5 cm² | five square centimeters
100 million kg | one hundred million kilograms
2012/01/05 | January fifth twenty twelve
2012.01.05 | January fifth twenty twelve
01.10.2010 | January tenth twenty ten
15.01.2020 | January fifteenth twenty twenty
11/17/05 | November seventeenth two thousand five
v2024.1.2 | v two thousand twenty four point one point two
jan. 5 | January fifth
Jan-15-2020 | January fifteenth twenty twenty
JAN. 15 2020 | January fifteenth twenty twenty
the 26th May | the twenty sixth of May
may 5 people come | may five people come
Mt. Fuji and Hon. Maj. Rev. Smith | Mount Fuji and Honorable Major Reverend Smith
Koppers Co. From | Koppers Company From
at Koppers Co. | at Koppers Company.
open Mon.-Sun. now | open Monday to Sunday now
the Sun. It rose | the Sun. It rose
1428 Elm St. It was | fourteen twenty eight Elm Street. It was
World War II ended | World War two ended
Henry VIII and Chapter V | Henry the eighth and Chapter five
Henry I met and Part I saw on the IV drip | Henry I met and Part I saw on the IV drip
localhost:8080/api | localhost colon eight zero eight zero slash api
192.168.1.1 | one nine two dot one six eight dot one dot one
192.168.1.1:8080 | one nine two dot one six eight dot one dot one colon eight zero eight zero
see kaikou.cn/a?b=1 now | see kaikou dot cn slash a question mark b equals one now
A$5.50 | five Australian dollars and fifty cents
$20.500 | twenty dollars and fifty cents
$.50 | fifty cents
±2 | plus or minus two
a load ≤5 kg | a load at most five kilograms
1960-80 | nineteen sixty to eighty
the 2000s | the two thousands
1960s-80s | nineteen sixties to eighties
4:00 am - 8:12 pm | four A M to eight twelve P M
3Q22 | the third quarter of twenty two
"""

KOREAN = """
2024년 6월 5일 | 이천이십사년 유월 오일
2024-10-06 | 이천이십사년 시월 육일
2024.5.6. | 이천이십사년 오월 육일
3시 30분 | 세시 삼십분
15:30 | 십오 시 삼십 분
9:05 | 아홉 시 오 분
3시간 | 세시간
20살 | 스무살
2~3개 | 두에서 세개
20개월 | 이십개월
100명 | 백명
1,234원 | 천이백삼십사원
₩1,000, 20살 | 천 원, 스무살
$3억 | 삼억 달러
50% | 오십 퍼센트
-5°C | 섭씨 영하 오도
120km/h | 시속 백이십 킬로미터
200㎡ | 이백 제곱미터
1/2 | 이분의 일
3.14 | 삼점일사
3.05 | 삼점영오
-3 | 마이너스 삼
007 | 공공칠
010-1234-5678 | 공일공 일이삼사 오육칠팔
12345678901234567 | 일이삼사오육칠팔구공일이삼사오육칠
"""

RUSSIAN = """
5 мая 2024 года | пятого мая две тысячи двадцать четвёртого года
01.05.2024 | первого мая две тысячи двадцать четвёртого года
2024-05-01 | первого мая две тысячи двадцать четвёртого года
в 2024 году | в две тысячи двадцать четвёртом году
1999 год | тысяча девятьсот девяносто девятый год
15:30 | пятнадцать тридцать
15:00 | пятнадцать часов
9:05 | девять ноль пять
1 час, 21 км и 2 кг | один час, двадцать один километр и два килограмма
2 мин | две минуты
3,5 км | три целых пять десятых километра
0.1% | ноль целых одна десятая процента
-5°C | минус пять градусов Цельсия
1 000 000 ₽ | один миллион рублей
$2,5 млн | две целых пять десятых миллиона долларов
101 руб. | сто один рубль
№ 5 | номер пять
120 км/ч | сто двадцать километров в час
+7 (495) 123-45-67 | плюс семь, четыреста девяносто пять, сто двадцать три, \
сорок пять, шестьдесят семь
007 | ноль ноль семь
3,1415 | три запятая один четыре один пять
"""


def cases(table):
    return [
        pytest.param(*(part.strip() for part in line.split(" | ")), id=line.split(" | ")[0])
        for line in table.strip().splitlines()
    ]


@pytest.mark.parametrize(("text", "expected"), cases(CHINESE))
def test_chinese_reading(text, expected):
    assert normalise(clean(text), "zh") == expected


@pytest.mark.parametrize(("text", "expected"), cases(ENGLISH))
def test_english_reading(text, expected):
    assert normalise(clean(text), "en") == expected


@pytest.mark.parametrize(("text", "expected"), cases(KOREAN))
def test_korean_reading(text, expected):
    assert normalise(clean(text), "ko") == expected


@pytest.mark.parametrize(("text", "expected"), cases(RUSSIAN))
def test_russian_reading(text, expected):
    assert normalise(clean(text), "ru") == expected


@pytest.mark.parametrize(
    "sentence",
    [
        "今天天气真好。",
        "他说：“走吧！”",
        "Hello, world!",
        "It's a well-known song.",
        "“Quoted,” he said.",
    ],
)
def test_plain_text_is_left_as_it_is(sentence):
    assert normalise(sentence, "zh") == normalise(sentence, "en") == sentence


@pytest.mark.parametrize(("typed", "expected"), [
    ("小明还[h][uán]钱了，3元。", "小明还[h][uán]钱了，三元。"),
    ("她重[ch][óng]新走了[n][ǚ]2次。", "她重[ch][óng]新走了[n][ǚ]两次。"),
    ("She [R][EH1][D] it 5 times in [AH0][K][T][OW1][B][ER0] 2024.",
        "She [R][EH1][D] it five times in [AH0][K][T][OW1][B][ER0] twenty twenty four."),
])  # fmt: skip
def test_readings_in_brackets_stay_and_what_is_around_them_is_read(typed, expected):
    assert "".join(prepare(typed)) == expected


def test_a_long_run_of_readings_is_cut_between_them():
    pieces = prepare("[uàng][zh][ǚ]" * 60 + "好。")
    assert len(pieces) > 2 and all(
        piece.count("[") == piece.count("]") and not piece.startswith("]") for piece in pieces
    )


def test_other_languages_keep_their_digits_for_their_engine():
    assert normalise("100円です", "ja") == "100円です"


def test_whole_numbers_match_a_second_way_of_counting():
    digits = {c: i for i, c in enumerate("零一二三四五六七八九")} | {"两": 2}
    units = {"十": 10, "百": 100, "千": 1000}

    def value(words):
        total = group = digit = 0
        for c in words:
            if c in digits:
                digit = digits[c]
            elif c in units:
                group, digit = group + (digit or 1) * units[c], 0
            else:
                total, group, digit = (total + group + digit) * {"万": 10**4, "亿": 10**8}[c], 0, 0
        return total + group + digit

    for n in [*range(0, 3000, 7), 10000, 10010, 100100, 205000, 1000001, 20000000, 99999999]:
        assert value(zh_cardinal(str(n))) == n, n


@pytest.mark.parametrize(
    ("digits", "expected"),
    [
        ("0", "zero"),
        ("19", "nineteen"),
        ("100", "one hundred"),
        ("1000021", "one million twenty one"),
    ],
)
def test_english_cardinals(digits, expected):
    assert en_cardinal(digits) == expected


def test_english_ordinals_and_years():
    assert [en_ordinal(n) for n in ("1", "12", "20", "101")] == [
        "first",
        "twelfth",
        "twentieth",
        "one hundred first",
    ]
    assert [en_year(y) for y in ("1066", "1900", "2000", "2005", "2026")] == [
        "ten sixty six", "nineteen hundred", "two thousand", "two thousand five",
        "twenty twenty six",
    ]  # fmt: skip
