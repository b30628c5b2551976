//! One test per op: the types it gives, and one example of each labelled constraint. Programs are one
//! line over parameters `%a`, `%b`, `%c`, whose types are given.

use crate::text::parse;

/// Checks `op` with operands of the given types: the result types after `:`, or the error.
fn check(params: &str, op: &str, expect: &str) {
    let params: Vec<&str> = params.split_whitespace().collect();
    let names = ["%a", "%b", "%c"];
    let list: Vec<String> = params.iter().zip(names).map(|(ty, name)| format!("{name}: {ty}")).collect();
    let extra = "
func @same(%x: f32[2]) -> f32[2] {
  return %x
}
func @flag(%x: f32[2]) -> bool[] {
  %p = constant @p : bool[]
  return %p
}
func @counted(%i: i32[], %x: f32[2]) -> f32[2] {
  return %x
}
func @none(%x: f32[2]) {
  return
}
const @p: bool[] = [true]
";
    let error = |stated: &str| {
        let names = ["%r", "%s"][..stated.matches('[').count().clamp(1, 2)].join(", ");
        let text =
            format!("func @main({}) {{\n  {names} = {op} : {stated}\n  return\n}}\n{extra}", list.join(", "));
        parse(&text, "t").err().map(|error| error.message().to_string())
    };
    match expect.strip_prefix(": ") {
        Some(types) => assert_eq!(error(types), None, "{op} : {types}"),
        None => {
            let (stated, expect) = expect.split_once(" => ").unwrap_or(("f32[]", expect));
            let found = error(stated).expect(op);
            assert!(found.contains(expect), "{op}\nfound:    {found}\nexpected: {expect}");
        }
    }
}

#[test]
fn every_op_counts_its_operands() {
    check("f32[]", "add %a", "add (C0): takes 2 operand(s), found 1");
    check("", "neg", "neg (C0): takes 1 operand(s), found 0");
    check("", "concat axis=0", "concat (C0): takes at least 1 operand(s), found 0");
    check(
        "f32[1048576,1048576]",
        "dot %a, %a contract=[]",
        "dot (C0): the result f32[1048576,1048576,1048576,",
    );
}

#[test]
fn sources() {
    check("", "iota axis=1", ": i32[2,3]");
    check("", "iota axis=2", "i32[2,3] => iota (C1): axis 2 of a result of rank 2");
    check("", "iota axis=0", "bool[2] => iota (C2)");
    check("u32[2]", "random %a distribution=normal", ": f16[N,3]");
    check("u32[3]", "random %a distribution=normal", "random (C1): the seed is u32[2], found u32[3]");
    check(
        "u32[2]",
        "random %a distribution=normal",
        "i32[2] => random (C2): there are no normal elements of i32",
    );
    check("u32[2]", "random %a distribution=uniform", "bool[2] => random (C2)");
}

#[test]
fn elementwise() {
    check("f32[N,2]", "exp %a", ": f32[N,2]");
    check("i32[2]", "exp %a", "i32[2] => exp (C1): does not exist for i32");
    check("f32[2]", "not %a", "not (C1)");
    check("bool[2]", "neg %a", "neg (C1)");
    check("f32[2] f16[2]", "add %a, %b", "add (C1): the operand types differ: f32[2] and f16[2]");
    check("bool[2] bool[2]", "add %a, %b", "add (C2): does not exist for bool");
    check("f32[2] f32[2]", "and %a, %b", "and (C2)");
    check("bool[2] bool[2]", "shl %a, %b", "shl (C2)");
    check("i32[2] i32[2]", "atan2 %a, %b", "atan2 (C2)");
    check("i8[2] i8[2]", "lt %a, %b", ": bool[2]");
    check("i8[2] i8[3]", "lt %a, %b", "lt (C1)");
    check("bool[2] f32[2] f32[2]", "select %a, %b, %c", ": f32[2]");
    check("i32[2] f32[2] f32[2]", "select %a, %b, %c", "select (C1)");
    check("bool[2] f32[2] f32[3]", "select %a, %b, %c", "select (C2)");
    check("bool[3] f32[2] f32[2]", "select %a, %b, %c", "select (C3)");
    check("f32[2]", "convert %a", ": bool[2]");
    check("f32[2]", "bitcast %a", ": u32[2]");
    check("f32[2]", "bitcast %a", "u16[2] => bitcast (C1): f32 has no bits in common with u16");
    check("u8[2]", "bitcast %a", "bool[2] => bitcast (C1)");
}

#[test]
fn layout() {
    check("f32[2,6]", "reshape %a", ": f32[3,4]");
    check("f32[N,4]", "reshape %a", ": f32[2,N,2]");
    check("f32[N,4]", "reshape %a", ": f32[all]");
    check("f32[N,4]", "reshape %a", "f32[N,5] => reshape (C1)");
    check("f32[2,N]", "transpose %a perm=[1,0]", ": f32[N,2]");
    check("f32[2,3]", "transpose %a perm=[0,0]", "transpose (C1)");
    check("f32[2,3]", "transpose %a perm=[0,18446744073709551615]", "transpose (C1)");
    check("f32[1,N]", "broadcast %a axes=[0,2]", ": f32[M,4,N]");
    check("f32[2]", "broadcast %a axes=[]", "f32[2] => broadcast (C1)");
    check("f32[2,2]", "broadcast %a axes=[1,0]", "f32[2,2] => broadcast (C2)");
    check("f32[2]", "broadcast %a axes=[1]", "f32[2] => broadcast (C2)");
    check(
        "f32[2]",
        "broadcast %a axes=[0]",
        "f32[3] => broadcast (C3): a dimension of size 2 cannot become 3",
    );
    check("f32[2,3]", "reverse %a axes=[1]", ": f32[2,3]");
    check("f32[2,3]", "reverse %a axes=[1,1]", "reverse (C1)");
    check("f32[5,N]", "slice %a begin=[1,0] end=[5,N] step=[2,1]", ": f32[2,N]");
    check("f32[5,N]", "slice %a begin=[0,1] end=[5,N]", ": f32[5,N.minus.1]");
    check("f32[5]", "slice %a begin=[] end=[]", "slice (C1)");
    check("f32[5]", "slice %a begin=[0] end=[5] step=[0]", "slice (C2)");
    check("f32[5]", "slice %a begin=[3] end=[2]", "slice (C3): 3 to 2 is not inside 0 to 5");
    check("f32[5]", "slice %a begin=[0] end=[6]", "slice (C3)");
    check("f32[5,N] f32[]", "pad %a, %b low=[1,1] high=[0,-1] interior=[1,0]", ": f32[10,N]");
    check("f32[5] f16[]", "pad %a, %b low=[1] high=[0]", "pad (C1)");
    check("f32[5] f32[]", "pad %a, %b low=[1] high=[]", "pad (C2)");
    check("f32[5] f32[]", "pad %a, %b low=[-6] high=[0]", "pad (C3)");
    check("f32[2,N] f32[2,3]", "concat %a, %b axis=1", ": f32[2,N.plus.3]");
    check("f32[2] f32[2]", "concat %a, %b axis=1", "concat (C1)");
    check(
        "f32[2,3] f32[3,3]",
        "concat %a, %b axis=1",
        "concat (C2): f32[2,3] and f32[3,3] differ outside axis 1",
    );
}

#[test]
fn indexing() {
    check("f32[4,N] i32[2,3]", "gather %a, %b axis=0", ": f32[2,3,N]");
    check("f32[4] i32[2]", "gather %a, %b axis=1", "gather (C1)");
    check("f32[4] f32[2]", "gather %a, %b axis=0", "gather (C2)");
    check("f32[0] i32[2]", "gather %a, %b axis=0", "gather (C3)");
    check("f32[4,3] i64[2] f32[4,2]", "scatter %a, %b, %c axis=1 combine=sum", ": f32[4,3]");
    check("f32[4] i32[2] f32[2]", "scatter %a, %b, %c axis=1", "scatter (C1)");
    check("f32[4] i32[2,1] f32[2,1]", "scatter %a, %b, %c axis=0", "scatter (C2)");
    check(
        "f32[4] i32[2] f32[3]",
        "scatter %a, %b, %c axis=0",
        "scatter (C3): updates are f32[3], not f32[2]",
    );
    check("f32[4] i32[2] f32[2]", "scatter %a, %b, %c axis=0 combine=or", "scatter (C4)");
    check("f32[0] i32[2] f32[2]", "scatter %a, %b, %c axis=0", "scatter (C5)");
}

#[test]
fn products() {
    check("f16[B,2,3] f16[3,B,4]", "dot %a, %b batch=[0:1] contract=[2:0] dtype=f32", ": f32[B,2,4]");
    check("f143[2] f152(3)[2]", "dot %a, %b contract=[0:0] dtype=f16", ": f16[]");
    check("f32[2] f16[2]", "dot %a, %b contract=[0:0]", "dot (C1)");
    check("bool[2] bool[2]", "dot %a, %b contract=[0:0]", "dot (C1)");
    check("f32[2] f32[2]", "dot %a, %b batch=[0:0] contract=[0:0]", "dot (C2)");
    check("f32[2] f32[2]", "dot %a, %b contract=[0:1]", "dot (C2)");
    check("f32[2] f32[3]", "dot %a, %b contract=[0:0]", "dot (C3)");
    check("f32[2] f32[2]", "dot %a, %b contract=[0:0] dtype=i32", "dot (C4)");
    check(
        "f32[N,4,8,W] f32[6,2,3,3]",
        "conv %a, %b groups=2 strides=[2,1] padding=[1:1,1:1]",
        ": f32[N,6,4,W]",
    );
    check("f32[1,2] i32[2,2]", "conv %a, %b", "conv (C1)");
    check("f32[2] f32[2]", "conv %a, %b", "conv (C2)");
    check("f32[1,2,5] f32[2,2,3]", "conv %a, %b strides=[1,1]", "conv (C3)");
    check("f32[1,3,5] f32[2,2,3]", "conv %a, %b", "conv (C4)");
    check("f32[1,2,5] f32[3,1,3]", "conv %a, %b groups=2", "conv (C4): 2 groups do not divide 3");
    check("f32[1,2,5] f32[2,2,3]", "conv %a, %b groups=0", "conv (C4)");
    check("f32[1,2,5] f32[2,2,3]", "conv %a, %b strides=[0]", "conv (C5)");
    check("f32[1,2,2] f32[2,2,3]", "conv %a, %b", "conv (C6): a kernel of 3 does not fit into 2");
    check("i8[1,2] i8[2,2]", "conv %a, %b dtype=f32", "conv (C7)");
}

#[test]
fn reductions() {
    check("f32[2,N,4]", "reduce %a func=sum axes=[0,2]", ": f32[N]");
    check("f32[2]", "reduce %a func=sum axes=[1]", "reduce (C1)");
    check("f32[2]", "reduce %a func=and axes=[0]", "reduce (C2)");
    check("bool[2]", "reduce %a func=max axes=[0]", "reduce (C2)");
    check("f32[4,N]", "reduce_window %a func=max window=[2,3] strides=[2,1] padding=[0:0,1:1]", ": f32[2,N]");
    check("f32[4]", "reduce_window %a func=max window=[2,2]", "reduce_window (C1)");
    check("f32[4]", "reduce_window %a func=max window=[0]", "reduce_window (C2)");
    check("f32[4]", "reduce_window %a func=max window=[5]", "reduce_window (C3)");
    check("f32[4]", "reduce_window %a func=or window=[2]", "reduce_window (C4)");
    check("f32[4]", "scan %a func=sum axis=1", "scan (C1)");
    check("i32[4]", "scan %a func=and axis=0", "scan (C2)");
    check("f32[2] i32[2]", "sort %a, %b axis=0", ": f32[2], i32[2]");
    check("f32[2]", "sort %a axis=1", "sort (C1)");
    check("f32[2] i32[3]", "sort %a, %b axis=0", "f32[2], i32[3] => sort (C2)");
}

#[test]
fn control() {
    check("f32[2]", "call @same %a", ": f32[2]");
    check("f32[3]", "call @same %a", "call (C2): the operands (f32[3]) differ from the parameters (f32[2])");
    check("f32[2]", "call @none %a", "call (C0): @none has no results");
    check("bool[] f32[2]", "if %a, %b then=@same else=@same", ": f32[2]");
    check("bool[2] f32[2]", "if %a, %b then=@same else=@same", "if (C2)");
    check("bool[] f32[3]", "if %a, %b then=@same else=@same", "if (C3)");
    check("bool[] f32[2]", "if %a, %b then=@same else=@flag", "if (C4)");
    check("f32[2]", "while %a cond=@flag body=@same", ": f32[2]");
    check("f32[2]", "while %a cond=@same body=@same", "while (C2)");
    check("f32[2]", "while %a cond=@flag body=@flag", "while (C3)");
    check("f32[2]", "repeat %a count=3 body=@counted", ": f32[2]");
    check("f32[2]", "repeat %a count=3 body=@same", "repeat (C2)");
    check("f32[2]", "repeat %a count=2147483648 body=@counted", "repeat (C3)");
}

/// Ids that do not exist cannot be written as text.
#[test]
fn ids_out_of_range() {
    use crate::{Module, Op, infer};
    use pando_base::Id;
    let module = Module::default();
    let error = |op: Op| infer(&op, &[], &module).unwrap_err().to_string();
    assert!(error(Op::Constant(Id::from_index(3))).starts_with("constant (C1): the constant @c3"));
    assert!(error(Op::Call(Id::from_index(0))).starts_with("call (C1): the function @f0 does not exist"));
    let (cond, body) = (Id::from_index(0), Id::from_index(0));
    assert!(error(Op::While { cond, body }).starts_with("while (C1)"));
    assert!(error(Op::Repeat { count: 1, body }).starts_with("repeat (C1)"));
}
